// SPDX-License-Identifier: Apache-2.0

package dl

import (
	"errors"
	"testing"
)

func TestOnce(t *testing.T) {
	var o Once[int]
	missing := errors.New("not installed")
	if v, err := o.Get(func() (int, error) { return 3, missing }); v != 0 || err != missing {
		t.Errorf("%d, %v", v, err)
	}
	for i := range 2 {
		if v, err := o.Get(func() (int, error) { return 4 + i, nil }); v != 4 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
	}
}
