// SPDX-License-Identifier: Apache-2.0

package region_test

import (
	"fmt"

	"github.com/gpurdma/gpurdma/dmabuf"
	"github.com/gpurdma/gpurdma/ibvfd"
	"github.com/gpurdma/gpurdma/ibvfd/region"
)

// A buffer of two dma-bufs is one range of addresses for every NIC.
func ExampleRegister() {
	register := func(first, second *dmabuf.Buf, near, far *ibvfd.PD) (*region.Region, error) {
		a, b := uint64(first.Size()), uint64(second.Size())
		return region.Register(region.Attr{
			Segments: []region.Segment{{Buf: first, Length: a}, {Buf: second, Length: b}},
			Length:   a + b, Access: ibvfd.AccessLocalWrite | ibvfd.AccessRemoteWrite,
		}, near, far)
	}
	_ = register

	_, err := region.Register(region.Attr{})
	fmt.Println(err)
	// Output: register region: no PD: EINVAL (22: invalid argument)
}
