// SPDX-License-Identifier: Apache-2.0

// Package cqueue is completion queues that connections share. A connection reserves room for
// all work requests that it may have outstanding, so that no queue overruns; the IDs of its work
// requests say to which connection a completion belongs. Change it to size, share, poll or retire
// completion queues in another way. A connection's use of its completions is in package
// workqueue; when queues are polled is decided in package progress.
package cqueue
