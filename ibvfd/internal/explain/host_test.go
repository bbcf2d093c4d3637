// SPDX-License-Identifier: Apache-2.0

package explain

import "testing"

// CAP_IPC_LOCK lifts the limit only in the first user namespace. A file that cannot be read blames
// no limit.
func TestReadMemlock(t *testing.T) {
	const limit = 64 << 10
	status := func(caps string) string { return "Name:\tx\nVmPin:\t      16 kB\nCapEff:\t" + caps }
	for name, c := range map[string]struct {
		files map[string]string
		want  Memlock
	}{
		"no capability": {map[string]string{"proc/self/status": status("0000000000000000"), "proc/self/ns/user": "-> " + firstUsers}, Memlock{limit, 16 << 10, false}},
		"capable":       {map[string]string{"proc/self/status": status("0000000000004000"), "proc/self/ns/user": "-> " + firstUsers}, Memlock{limit, 16 << 10, true}},
		"root of another user namespace": {map[string]string{"proc/self/status": status("000001ffffffffff"), "proc/self/ns/user": "-> user:[4026532000]"},
			Memlock{limit, 16 << 10, false}},
		"namespace unread": {map[string]string{"proc/self/status": status("0000000000004000")}, Memlock{limit, 16 << 10, true}},
		"status unread":    {nil, Memlock{Limit: Unlimited}},
	} {
		if got := readMemlock(machine(t, c.files).Proc, limit); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
