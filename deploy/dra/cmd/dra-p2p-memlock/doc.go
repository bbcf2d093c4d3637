// SPDX-License-Identifier: Apache-2.0

// Command dra-p2p-memlock is a hook of a container's runtime, of the stage createRuntime. It raises the limit of
// locked memory of the container's first process, whose ID is in the state that the runtime writes to the
// standard input. dra-p2p installs it on the host and names it in the CDI specifications of claims.
//
// It ends with status 0 also when it could not raise the limit: a runtime does not start a container whose hook
// fails, and many programs do with the limit that they have. The reason is in the kernel's log, because a runtime
// shows what a hook prints only if the hook fails.
//
// Package memlock does the work: change that.
package main
