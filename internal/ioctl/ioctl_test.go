// SPDX-License-Identifier: Apache-2.0

package ioctl

import (
	"errors"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gpurdma/gpurdma/internal/ioctl/ioctltest"
)

// Golden numbers, as the C preprocessor prints them from the kernel headers.
func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uint32
	}{
		{"DMA_BUF_IOCTL_SYNC", IOW('b', 0, 8), 0x40086200},
		{"DMA_BUF_SET_NAME_B", IOW('b', 1, 8), 0x40086201},
		{"UDMABUF_CREATE", IOW('u', 0x42, 24), 0x40187542},
		{"DRM_IOCTL_VERSION", IOWR('d', 0, 64), 0xc0406400},
		{"RDMA_VERBS_IOCTL", IOWR(0x1b, 1, 24), 0xc0181b01},
		{"TUNATTACHFILTER's neighbour _IO", IO('b', 3), 0x6203},
	} {
		if c.got != c.want {
			t.Errorf("%s = %#x, want %#x", c.name, c.got, c.want)
		}
	}
}

func TestKernelAnswersErrno(t *testing.T) {
	var arg [8]byte
	err := Kernel.Ioctl(-1, IO('b', 3), unsafe.Pointer(&arg))
	if !errors.Is(err, unix.EBADF) {
		t.Errorf("ioctl on fd -1: %v, want EBADF", err)
	}
}

func TestRetryAgain(t *testing.T) {
	s := ioctltest.NewScript(ioctltest.Step{Req: 1, Errno: unix.EAGAIN}, ioctltest.Step{Req: 1, Errno: unix.EAGAIN}, ioctltest.Step{Req: 1, Errno: unix.EBUSY})
	if err := RetryAgain(s).Ioctl(3, 1, nil); err != unix.EBUSY {
		t.Errorf("got %v, want EBUSY after two EAGAIN", err)
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
}
