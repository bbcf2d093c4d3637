// SPDX-License-Identifier: Apache-2.0

// Package fabrictest runs programs that use package gpurdma, without a NIC, a GPU or privileges.
// Its NICs, their memory and the network between them are in the memory of the process.
//
// A program under test gets its Fabric from the test. New returns one Fabric, for programs
// whose two sides share it. A Network has several machines, each with NICs of its own:
//
//	net := fabrictest.NewNetwork(fabrictest.Options{})
//	server, err := net.Open("mlx5_0")
//	client, err := net.Open("mlx5_0")
//
// Network.Open takes the place of gpurdma.Open, and has its signature. Network.OpenDomain takes
// that of fi.Open, for programs of package fi.
//
// # Addresses
//
// Listen and Dial take addresses of the form "host:port", such as those in the program's
// configuration; they use no port of the real machine. All machines of a Network share its
// addresses: two machines cannot listen on the same address, and each reaches the other by
// 127.0.0.1 or localhost. There are no addresses of rdma_cm.
//
// As over a NIC, an address with another host than a loopback address or localhost needs TLS,
// or Config.AllowPlaintext: otherwise Listen, and a Dial that finds a listener, return
// gpurdma.ErrUnsafe. A test of a
// program without TLS gives it addresses such as "127.0.0.1:7471", for all of its machines.
//
// # Memory
//
// Fabric.Alloc takes the specs that package gpualloc has on some machine, such as "cuda:0",
// "drm:renderD128" or "udmabuf", and those of a gpualloc.Runtime of the program. All of them give
// memory that NICs access directly; the program need not import the backends. For another spec
// Alloc returns gpualloc.ErrUnknownSpec. "host" is host memory. "staged", which no real Fabric
// has, is memory that NICs cannot register. NewMemory and NewStagedMemory make memory for
// Fabric.Register.
//
// # Failures
//
// A test makes NICs, paths, machines and memory fail by Cut, Lose, CutExchanges, LoseAnswers,
// Hold, SetPort, Remove and Revoke. A NIC gives up a silent peer after about Config.PeerTimeout,
// as a real NIC does; so a test sets a short PeerTimeout. OnCorrupt makes bytes of writes wrong.
//
// # Late bytes
//
// By default the bytes of a write are in the peer's memory when the write is acknowledged. RDMA
// does not promise that: the bytes may arrive later, and in another order, until a message, a
// notification, an atomic or a write with Delivered of the same connection pushes them. With
// Options.HoldWrites all bytes arrive only then. So a program fails if it relies on an earlier
// arrival, or if it reads back what it has written without Delivered. OnPlace chooses for each
// write.
//
// # Differences from NICs
//
// Bytes move at the speed of copies, unless NIC.SetRate sets a lower one. Only Config.TLS encrypts. Each NIC has one port, number 1,
// with one GID, of RoCE v2 with an IPv4 address, and no partitions: Listen and Dial refuse a
// Config.PKey, another Config.Port, and a Config.GID that this GID does not meet. The network
// looks up no host name. Every machine has every address and every GPU that the program names.
package fabrictest

// The network is internal/memnic. To let tests cause another failure, add it there, and a method here.
