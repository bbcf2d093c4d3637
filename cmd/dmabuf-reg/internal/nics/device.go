// SPDX-License-Identifier: Apache-2.0

package nics

import (
	"errors"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// Device is an RDMA device with what it supports.
type Device struct {
	ibdev.Info
	Support *ibvfd.Support `json:"support"`                 // whether the device registers dma-bufs; null if the probe itself failed
	Problem string         `json:"support_error,omitempty"` // why the probe failed
}

// List lists the RDMA devices, by ibdev.List or ListWithoutGIDs.
func List(devices func(sys string) ([]ibdev.Info, error)) ([]Device, error) {
	infos, err := devices("")
	if err != nil {
		return nil, err
	}
	nics := []Device{}
	for _, info := range infos {
		nics = append(nics, Device{Info: info})
	}
	return nics, nil
}

// Find lists the RDMA devices and asks each what it supports.
func Find(devices func(sys string) ([]ibdev.Info, error)) ([]Device, error) {
	nics, err := List(devices)
	if err != nil {
		return nil, err
	}
	for i := range nics {
		if s, err := ibvfd.Probe(nics[i].Name); err != nil {
			nics[i].Problem = err.Error()
		} else {
			nics[i].Support = &s
		}
	}
	return nics, nil
}

// deviceNames are the RDMA devices of this machine.
func deviceNames() (list []string) {
	infos, _ := ibdev.ListWithoutGIDs("")
	for _, i := range infos {
		list = append(list, i.Name)
	}
	return list
}

// Open opens a device that Pick named.
func Open(name string) (*ibvfd.Context, error) {
	c, err := ibvfd.Open(name)
	return c, Missing(err)
}

// NeedLibrary fails early if no NIC could be opened whatever its name.
func NeedLibrary() error {
	c, err := ibvfd.Open("")
	if err == nil {
		return c.Close()
	}
	if err = Missing(err); errors.As(err, new(*cli.Unavailable)) {
		return err
	}
	return nil
}

// Missing marks what is no failure of the device.
func Missing(err error) error {
	if errors.Is(err, ibvfd.ErrNotBuilt) || errors.Is(err, ibvfd.ErrNoLibrary) || errors.Is(err, ibvfd.ErrBrokenLibrary) {
		return &cli.Unavailable{Err: err}
	}
	return err
}
