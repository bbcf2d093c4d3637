// SPDX-License-Identifier: Apache-2.0

package testenv

// These names are for the comparison with the drivers' headers. That test imports a package
// that imports this one, so it cannot be in this package.
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
