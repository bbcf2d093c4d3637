// SPDX-License-Identifier: Apache-2.0

// Package placement says where the bytes of a registration are, and on what
// evidence.
//
// A successful registration proves nothing about placement: drivers move a
// buffer to system memory and report success. This package has the type of the
// answer ([Placement]), the rule that makes the answer from what a watcher has
// seen of the kernel ([Decide], a pure function), and the interface by which a
// program gets it from a tracer ([Prover]). It imports nothing of this module,
// so that a program that moves data does not link a tracer.
//
// # Memory and route
//
// Two questions are kept apart. [Memory] is where the bytes are: behind a BAR,
// in system memory, in both. [Route] is the way that DMA takes to them: below
// a common switch, or through the root complex. "Direct" needs both answers
// ([Placement.Direct]).
//
// # Unknown
//
// A placement without proof is [Unknown], with the reason. A guess that the evidence
// suggests is in Likely and never in Memory. That an attachment may be
// peer-to-peer (dma_buf_attachment.peer2peer) is a permission and never proof.
package placement

// To add a verdict or a kind of evidence, change this package. Package trace gives the verdicts.
