// SPDX-License-Identifier: Apache-2.0

// Package binding answers the scheduler, which waits before it binds a pod to this node: are the NICs of the
// pod's claim partners of its GPUs? The answer is a condition in the claim's status. With a no, the scheduler takes the
// devices back and chooses again. To answer otherwise, change Controller.Agree.
package binding
