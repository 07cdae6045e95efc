package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// name of the operator.
const name = "pod-pool"

// Indexes of pods.
const (
	// Index by the UID of the controller, which is empty for orphans.
	controllerIndex = "metadata.controller"
	nodeIndex       = "spec.nodeName"
)

// reconciler performs plans. Client reads from caches and writes to the API server.
//
// A reconciliation may read a cache that lacks pods which the last one has created. controller-runtime has no counterpart of
// the expectations that prevent a second creation.
type reconciler struct {
	client.Client
	recorder     events.EventRecorder
	reservations reservations

	mu sync.Mutex
	// Last reservations, by UID.
	reserved map[types.UID]reservation
}

// setUp adds the operator to a manager.
func setUp(ctx context.Context, mgr ctrl.Manager, external reservations) error {
	indexes := map[string]client.IndexerFunc{
		controllerIndex: func(pod client.Object) []string {
			if owner := metav1.GetControllerOf(pod); owner != nil {
				return []string{string(owner.UID)}
			}
			return []string{""}
		},
		nodeIndex: func(pod client.Object) []string { return []string{pod.(*corev1.Pod).Spec.NodeName} },
	}
	for index, function := range indexes {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, index, function); err != nil {
			return fmt.Errorf("failed to add index %q of pods: %w", index, err)
		}
	}
	r := &reconciler{
		Client:       mgr.GetClient(),
		recorder:     mgr.GetEventRecorder(name),
		reservations: external,
		reserved:     map[types.UID]reservation{},
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(name).
		For(&PodPool{}).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.adopters)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.poolsOn)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(r)
}

// adopters returns the pools that may adopt a pod.
func (r *reconciler) adopters(ctx context.Context, object client.Object) []ctrl.Request {
	if metav1.GetControllerOf(object) != nil {
		return nil
	}
	var pools PodPoolList
	if err := r.List(ctx, &pools, client.InNamespace(object.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list pools")
		return nil
	}
	var requests []ctrl.Request
	for i := range pools.Items {
		if pool := &pools.Items[i]; selects(pool, object.(*corev1.Pod)) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pool)})
		}
	}
	return requests
}

// poolsOn returns the pools with pods on a node.
func (r *reconciler) poolsOn(ctx context.Context, node client.Object) []ctrl.Request {
	var pods corev1.PodList
	if err := r.List(ctx, &pods, client.MatchingFields{nodeIndex: node.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Failed to list pods of node")
		return nil
	}
	var requests []ctrl.Request
	for i := range pods.Items {
		owner := metav1.GetControllerOf(&pods.Items[i])
		if owner != nil && owner.APIVersion == groupVersion.String() && owner.Kind == "PodPool" {
			key := types.NamespacedName{Namespace: pods.Items[i].Namespace, Name: owner.Name}
			requests = append(requests, ctrl.Request{NamespacedName: key})
		}
	}
	return requests
}

// Reconcile performs the plan for a pool.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var pool PodPool
	if err := r.Get(ctx, request.NamespacedName, &pool); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	pods, err := r.claim(ctx, &pool)
	if err != nil {
		return ctrl.Result{}, err
	}
	cordoned, err := r.cordoned(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := makePlan(view{pool: &pool, pods: pods, cordoned: cordoned, reservation: r.reservation(pool.UID)}, time.Now())
	return ctrl.Result{RequeueAfter: p.again}, r.perform(ctx, &pool, p)
}

// claim returns the pods of the pool. It adopts and releases pods by their labels.
func (r *reconciler) claim(ctx context.Context, pool *PodPool) ([]*corev1.Pod, error) {
	var owned, orphans corev1.PodList
	lists := map[string]*corev1.PodList{string(pool.UID): &owned, "": &orphans}
	for controller, list := range lists {
		index := client.MatchingFields{controllerIndex: controller}
		if err := r.List(ctx, list, client.InNamespace(pool.Namespace), index); err != nil {
			return nil, fmt.Errorf("failed to list pods: %w", err)
		}
	}
	var claimed []*corev1.Pod
	for i := range owned.Items {
		pod := &owned.Items[i]
		switch {
		case selects(pool, pod):
			claimed = append(claimed, pod)
		case pool.DeletionTimestamp.IsZero():
			patch := lockedPatch(pod)
			if err := controllerutil.RemoveControllerReference(pool, pod, r.Scheme()); err != nil {
				return nil, err
			}
			if err := r.Patch(ctx, pod, patch); client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("failed to release pod %s: %w", pod.Name, err)
			}
		}
	}
	for i := range orphans.Items {
		pod := &orphans.Items[i]
		if !selects(pool, pod) || !pool.DeletionTimestamp.IsZero() || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		patch := lockedPatch(pod)
		if err := controllerutil.SetControllerReference(pool, pod, r.Scheme()); err != nil {
			return nil, err
		}
		if err := r.Patch(ctx, pod, patch); err != nil {
			return nil, fmt.Errorf("failed to adopt pod %s: %w", pod.Name, err)
		}
		claimed = append(claimed, pod)
	}
	return claimed, nil
}

// cordoned returns the names of the nodes that take no new pods.
func (r *reconciler) cordoned(ctx context.Context) (sets.Set[string], error) {
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("failed to list nodes: %w", err)
	}
	names := sets.New[string]()
	for i := range nodes.Items {
		if nodes.Items[i].Spec.Unschedulable {
			names.Insert(nodes.Items[i].Name)
		}
	}
	return names, nil
}

func (r *reconciler) perform(ctx context.Context, pool *PodPool, p plan) error {
	if p.status != nil {
		patch := client.MergeFrom(pool.DeepCopy())
		pool.Status = *p.status
		if err := r.Status().Patch(ctx, pool, patch); err != nil {
			return fmt.Errorf("failed to write status: %w", err)
		}
	}
	if p.addFinalizer {
		patch := lockedPatch(pool)
		controllerutil.AddFinalizer(pool, finalizer)
		if err := r.Patch(ctx, pool, patch); err != nil {
			return fmt.Errorf("failed to add finalizer: %w", err)
		}
	}
	if p.reserve != nil {
		if err := r.reserve(ctx, pool, *p.reserve); err != nil {
			return err
		}
	}
	if err := r.deletePods(ctx, pool, p.deletePods); err != nil {
		return err
	}
	if err := r.createPods(ctx, pool, p.createPods); err != nil {
		return err
	}
	if p.release {
		return r.release(ctx, pool)
	}
	return nil
}

func (r *reconciler) reserve(ctx context.Context, pool *PodPool, seats int32) error {
	if err := r.reservations.reserve(ctx, pool.UID, seats); err != nil {
		return fmt.Errorf("failed to reserve seats: %w", err)
	}
	r.mu.Lock()
	old, existed := r.reserved[pool.UID]
	r.reserved[pool.UID] = reservation{seats: seats, at: time.Now()}
	r.mu.Unlock()
	if !existed || old.seats != seats {
		r.event(pool, nil, corev1.EventTypeNormal, "Reserved", "Reserved %d seats", seats)
	}
	return nil
}

func (r *reconciler) deletePods(ctx context.Context, pool *PodPool, pods []*corev1.Pod) error {
	for _, pod := range pods {
		err := r.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			// The pod is gone, or another one has its name.
		case err != nil:
			return fmt.Errorf("failed to delete pod %s: %w", pod.Name, err)
		default:
			r.event(pool, pod, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod %s", pod.Name)
		}
	}
	return nil
}

func (r *reconciler) createPods(ctx context.Context, pool *PodPool, count int) error {
	for range count {
		template := pool.Spec.Template.DeepCopy()
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName: pool.Name + "-",
				Namespace:    pool.Namespace,
				Labels:       template.Labels,
				Annotations:  template.Annotations,
			},
			Spec: template.Spec,
		}
		if err := controllerutil.SetControllerReference(pool, pod, r.Scheme()); err != nil {
			return err
		}
		if err := r.Create(ctx, pod); err != nil {
			r.event(pool, nil, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
			return fmt.Errorf("failed to create pod: %w", err)
		}
		r.event(pool, pod, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod %s", pod.Name)
	}
	return nil
}

// release ends the reservation, and removes the finalizer.
func (r *reconciler) release(ctx context.Context, pool *PodPool) error {
	if err := r.reservations.release(ctx, pool.UID); err != nil {
		return fmt.Errorf("failed to end reservation: %w", err)
	}
	r.mu.Lock()
	delete(r.reserved, pool.UID)
	r.mu.Unlock()
	patch := lockedPatch(pool)
	controllerutil.RemoveFinalizer(pool, finalizer)
	if err := r.Patch(ctx, pool, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to remove finalizer: %w", err)
	}
	return nil
}

func (r *reconciler) reservation(pool types.UID) reservation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reserved[pool]
}

// event records an event of the pool. Events that differ only in the note are one event, so those of pods have the pod as related.
func (r *reconciler) event(pool *PodPool, related runtime.Object, eventType, reason, note string, args ...any) {
	r.recorder.Eventf(pool, related, eventType, reason, "Reconcile", note, args...)
}

// lockedPatch returns a patch from the current state of the object. The API server refuses it if the cache is behind.
func lockedPatch(object client.Object) client.Patch {
	base := object.DeepCopyObject().(client.Object)
	return client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
}
