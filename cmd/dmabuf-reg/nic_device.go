// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/gpurdma/gpurdma/cmd/internal/cli"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/ibdev"
)

// nic is an RDMA device with what it supports.
type nic struct {
	ibdev.Info
	Support *ibvfd.Support `json:"support"`                 // null if the probe itself failed
	Problem string         `json:"support_error,omitempty"` // why it failed
}

// listNICs lists the RDMA devices, by ibdev.List or DevicesWithoutGIDs.
func listNICs(devices func(sys string) ([]ibdev.Info, error)) ([]nic, error) {
	infos, err := devices("")
	if err != nil {
		return nil, err
	}
	nics := []nic{}
	for _, info := range infos {
		nics = append(nics, nic{Info: info})
	}
	return nics, nil
}

// findNICs lists the RDMA devices and asks each what it supports.
func findNICs(devices func(sys string) ([]ibdev.Info, error)) ([]nic, error) {
	nics, err := listNICs(devices)
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

// openNIC opens a device that pickNIC named.
func openNIC(name string) (*ibvfd.Context, error) {
	c, err := ibvfd.Open(name)
	return c, missing(err)
}

// needLibrary fails early if no NIC could be opened whatever its name.
func needLibrary() error {
	c, err := ibvfd.Open("")
	if err == nil {
		return c.Close()
	}
	if err = missing(err); errors.As(err, new(*cli.Unavailable)) {
		return err
	}
	return nil
}

// missing marks what is no failure of the device.
func missing(err error) error {
	if errors.Is(err, ibvfd.ErrNotBuilt) || errors.Is(err, ibvfd.ErrNoLibrary) || errors.Is(err, ibvfd.ErrBrokenLibrary) {
		return &cli.Unavailable{Err: err}
	}
	return err
}
