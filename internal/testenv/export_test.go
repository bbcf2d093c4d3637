// SPDX-License-Identifier: Apache-2.0

package testenv

// What the comparison with the drivers' headers needs, which cannot be in this package:
// it builds on it.
type (
	ExporterCreate   = exporterCreate
	ImporterAttach   = importerAttach
	ImporterMap      = importerMap
	ImporterTransfer = importerTransfer
	ImporterDistance = importerDistance
)

var (
	ExporterCreateIoctl = exporterCreateIoctl
	ExporterMoveIoctl   = exporterMoveIoctl
)

const (
	ImporterPeer2Peer = importerPeer2Peer
	Importer32Bit     = importer32Bit
)
