package main

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var groupVersion = schema.GroupVersion{Group: "example.org", Version: "v1"}

// PodPool is a number of equal pods, each of which takes a seat of an external reservation.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Replicas,type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name=Ready,type=integer,JSONPath=`.status.readyReplicas`
type PodPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PodPoolSpec   `json:"spec"`
	Status PodPoolStatus `json:"status,omitempty"`
}

// PodPoolSpec is the specified state of a pool.
type PodPoolSpec struct {
	// Number of pods.
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`
	// Labels of the pods. Pods that have them and no controller are adopted.
	Selector map[string]string `json:"selector"`
	// Template of the pods. Its labels contain those of the selector.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Template corev1.PodTemplateSpec `json:"template"`
	// Maximum number of pods that are not ready while pods are moved off cordoned nodes.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=1
	MaxUnavailable int32 `json:"maxUnavailable"`
}

// PodPoolStatus is the observed state of a pool.
type PodPoolStatus struct {
	// Generation of the specification that this status is for.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Number of pods that are not finished and not being deleted.
	// +kubebuilder:default=0
	Replicas int32 `json:"replicas"`
	// Number of those that are ready.
	// +kubebuilder:default=0
	ReadyReplicas int32 `json:"readyReplicas"`
	// Number of those that are on cordoned nodes.
	// +kubebuilder:default=0
	CordonedReplicas int32 `json:"cordonedReplicas"`
}

// PodPoolList is a list of pools.
//
// +kubebuilder:object:root=true
type PodPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PodPool `json:"items"`
}

// addToScheme registers the types.
func addToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(groupVersion, &PodPool{}, &PodPoolList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
	return nil
}
