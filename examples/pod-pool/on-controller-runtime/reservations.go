package main

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// reservations is the external system that pods take seats of. Both calls can take minutes, and can be repeated.
type reservations interface {
	// reserve reserves seats for the pool with this UID, or changes their number. A reservation ends half an hour after its
	// last renewal.
	reserve(ctx context.Context, pool types.UID, seats int32) error
	// release ends the reservation, if there is one.
	release(ctx context.Context, pool types.UID) error
}

// fakeReservations is reservations in memory. Each call takes delay.
type fakeReservations struct {
	delay time.Duration

	mu    sync.Mutex
	seats map[types.UID]int32
}

func newFakeReservations(delay time.Duration) *fakeReservations {
	return &fakeReservations{delay: delay, seats: map[types.UID]int32{}}
}

func (f *fakeReservations) reserve(ctx context.Context, pool types.UID, seats int32) error {
	return f.change(ctx, func() { f.seats[pool] = seats })
}

func (f *fakeReservations) release(ctx context.Context, pool types.UID) error {
	return f.change(ctx, func() { delete(f.seats, pool) })
}

func (f *fakeReservations) change(ctx context.Context, change func()) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(f.delay):
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	return nil
}
