// SPDX-License-Identifier: Apache-2.0

package fault

import "testing"

// A cause reads back from its name.
func TestCauseText(t *testing.T) {
	for i := range causeNames {
		var c Cause
		if err := c.UnmarshalText([]byte(Cause(i).String())); err != nil || c != Cause(i) {
			t.Errorf("%v reads back as %v, %v", Cause(i), c, err)
		}
	}
	var c Cause
	if err := c.UnmarshalText([]byte("no such")); err == nil {
		t.Errorf("no such cause: %v", c)
	}
}

func TestEveryNumberHasAName(t *testing.T) {
	if len(causeNames) != int(CauseUnreachable)+1 || len(stageNames) != int(StageDriver)+1 {
		t.Error("a name is missing")
	}
}
