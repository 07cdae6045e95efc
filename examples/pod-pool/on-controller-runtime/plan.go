package main

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

const (
	// finalizer of pools that may have a reservation.
	finalizer = "example.org/reservation"
	// renewal is the time after which a reservation is renewed.
	renewal = 10 * time.Minute
)

// view is the state from which the plan is computed, besides the time.
type view struct {
	pool *PodPool
	// Pods that the pool owns, those that are being deleted included.
	pods []*corev1.Pod
	// Names of the nodes that take no new pods.
	cordoned sets.Set[string]
	// Last reservation that this process has made for the pool, or the zero value.
	reservation reservation
}

// reservation of seats.
type reservation struct {
	seats int32
	// Time at which it was made or renewed.
	at time.Time
}

// plan is a list of operations. They are performed in the order of the fields, up to the first that fails.
type plan struct {
	// Status to write, or nil.
	status *PodPoolStatus
	// Adds the finalizer. Nothing is reserved before.
	addFinalizer bool
	// Seats to reserve, or nil.
	reserve *int32
	// Pods to delete.
	deletePods []*corev1.Pod
	// Number of pods to create.
	createPods int
	// Ends the reservation, and removes the finalizer.
	release bool
	// Time of the next plan if nothing changes before, or 0.
	again time.Duration
}

// makePlan returns the operations that lead to the specified state.
func makePlan(v view, now time.Time) plan {
	hasFinalizer := controllerutil.ContainsFinalizer(v.pool, finalizer)
	switch deleted := !v.pool.DeletionTimestamp.IsZero(); {
	case deleted && hasFinalizer:
		return deletion(v)
	case deleted:
		return plan{}
	case hasFinalizer:
		return maintenance(v, now)
	default:
		return plan{addFinalizer: true}
	}
}

// deletion plans for a pool that is being deleted: its pods first, then the reservation, then the finalizer.
func deletion(v view) plan {
	if len(v.pods) == 0 {
		return plan{release: true}
	}
	var p plan
	for _, pod := range v.pods {
		if pod.DeletionTimestamp.IsZero() {
			p.deletePods = append(p.deletePods, pod)
		}
	}
	return p
}

func maintenance(v view, now time.Time) plan {
	var p plan
	var active, onCordoned []*corev1.Pod
	var ready int32
	for _, pod := range v.pods {
		switch {
		case !pod.DeletionTimestamp.IsZero():
		case isFinished(pod):
			p.deletePods = append(p.deletePods, pod)
		default:
			active = append(active, pod)
		}
	}
	sortForDeletion(active, v.cordoned)
	for _, pod := range active {
		if isReady(pod) {
			ready++
		}
		if v.cordoned.Has(pod.Spec.NodeName) {
			onCordoned = append(onCordoned, pod)
		}
	}
	replicas, count := v.pool.Spec.Replicas, int32(len(active))

	status := PodPoolStatus{
		ObservedGeneration: v.pool.Generation,
		Replicas:           count,
		ReadyReplicas:      ready,
		CordonedReplicas:   int32(len(onCordoned)),
	}
	if v.pool.Status != status {
		p.status = &status
	}

	// Seats are reserved before their pods are created, and given back after their pods are deleted.
	seats := replicas
	if count > replicas {
		seats = max(seats, v.reservation.seats)
	}
	p.again = renewal
	if age := now.Sub(v.reservation.at).Abs(); v.reservation.seats == seats && age < renewal {
		p.again -= age
	} else {
		p.reserve = &seats
	}

	switch {
	case count < replicas:
		p.createPods = int(replicas - count)
	case count > replicas:
		p.deletePods = append(p.deletePods, active[:count-replicas]...)
	default:
		p.deletePods = append(p.deletePods, moved(onCordoned, replicas-ready, v.pool.Spec.MaxUnavailable)...)
	}
	return p
}

// moved returns the pods that are moved off cordoned nodes now. They are deleted, and replaced in a later plan.
func moved(onCordoned []*corev1.Pod, unavailable, maxUnavailable int32) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, pod := range onCordoned {
		switch {
		case !isReady(pod):
			pods = append(pods, pod)
		case unavailable < maxUnavailable:
			unavailable++
			pods = append(pods, pod)
		}
	}
	return pods
}

// sortForDeletion sorts pods so that the first ones are deleted first: those on cordoned nodes, those that are not ready, those
// on nodes with more pods of the pool, the newest.
func sortForDeletion(pods []*corev1.Pod, cordoned sets.Set[string]) {
	crowd := map[string]int{}
	for _, pod := range pods {
		crowd[pod.Spec.NodeName]++
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(
			trueLast(!cordoned.Has(a.Spec.NodeName), !cordoned.Has(b.Spec.NodeName)),
			trueLast(isReady(a), isReady(b)),
			cmp.Compare(crowd[b.Spec.NodeName], crowd[a.Spec.NodeName]),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

func trueLast(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// selects returns true if the pool manages the pod, or adopts it if the pod has no controller.
func selects(pool *PodPool, pod *corev1.Pod) bool {
	selector := labels.SelectorFromSet(pool.Spec.Selector)
	return pool.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels))
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
