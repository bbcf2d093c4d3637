// SPDX-License-Identifier: Apache-2.0

//go:build !cgo

package nvml

func list(string) ([]GPU, error) { return nil, ErrNotBuilt }

func confidential(string) (bool, error) { return false, ErrNotBuilt }

func peers(string) ([]Peer, error) { return nil, ErrNotBuilt }
