// SPDX-License-Identifier: Apache-2.0

// Package memlock raises the limit of locked memory (RLIMIT_MEMLOCK) of a container before its program starts, as
// a hook of the container's runtime. CDI and Kubernetes have no field for it. To set another limit of the process, or
// to read more of what the runtime says, change raise.go.
//
// # The stage
//
// The hook is of the stage createRuntime: the runtime calls it in its own namespaces, when the container's first
// process is there and has not yet become the container's program. runc sets the limits of the container's own
// configuration after that (procReady in libcontainer/process_linux.go): one that the site has configured stays.
// What `kubectl exec` starts is no child of the first process, and has the runtime's own limit.
//
// # What is counted
//
// ib_umem_get() (drivers/infiniband/core/umem.c) counts host memory that is registered, queues included, against the
// limit, unless the process has CAP_IPC_LOCK. GPU memory that is registered as a dma-buf is not counted.
package memlock
