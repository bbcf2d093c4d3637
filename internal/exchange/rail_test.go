// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"errors"
	"testing"
)

func TestRailReport(t *testing.T) {
	for _, want := range []RailReport{{}, {Rail: 3, Link: 7, Received: 1 << 40}, {Rail: MaxRails - 1, Removed: true}} {
		if got, err := DecodeRailReport(want.Encode()); err != nil || got != want {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
	good := RailReport{Removed: true}.Encode()
	wrong := map[string][]byte{
		"empty": nil, "a part": good[:len(good)-1], "more": append(good[:len(good):len(good)], 0),
		"no such rail": RailReport{Rail: MaxRails}.Encode(), "removed twice": append(good[:len(good)-1:len(good)-1], 2),
	}
	for name, body := range wrong {
		if got, err := DecodeRailReport(body); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
