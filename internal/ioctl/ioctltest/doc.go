// SPDX-License-Identifier: Apache-2.0

// Package ioctltest plays the kernel's part of ioctls in tests: a script of requests and answers. Change it to let a
// script answer in another way.
package ioctltest
