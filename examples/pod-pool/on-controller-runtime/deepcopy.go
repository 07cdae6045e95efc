package main

import (
	"maps"

	"k8s.io/apimachinery/pkg/runtime"
)

// Deep copies, which controller-gen usually generates.

// DeepCopyInto writes a copy of the pool to out.
func (in *PodPool) DeepCopyInto(out *PodPool) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Selector = maps.Clone(in.Spec.Selector)
	in.Spec.Template.DeepCopyInto(&out.Spec.Template)
}

// DeepCopy returns a copy of the pool.
func (in *PodPool) DeepCopy() *PodPool {
	out := new(PodPool)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject returns a copy of the pool.
func (in *PodPool) DeepCopyObject() runtime.Object {
	return in.DeepCopy()
}

// DeepCopyObject returns a copy of the list.
func (in *PodPoolList) DeepCopyObject() runtime.Object {
	out := &PodPoolList{TypeMeta: in.TypeMeta, Items: make([]PodPool, len(in.Items))}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range in.Items {
		in.Items[i].DeepCopyInto(&out.Items[i])
	}
	return out
}
