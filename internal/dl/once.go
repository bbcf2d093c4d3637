// SPDX-License-Identifier: Apache-2.0

package dl

import "sync"

// Once keeps what is bound to a library, once that has succeeded: a library that
// is installed later is found then.
type Once[T any] struct {
	mu   sync.Mutex
	done bool
	v    T
}

// Get is load's result, or an earlier one.
func (o *Once[T]) Get(load func() (T, error)) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.done {
		return o.v, nil
	}
	v, err := load()
	if err != nil {
		var none T
		return none, err
	}
	o.v, o.done = v, true
	return v, nil
}
