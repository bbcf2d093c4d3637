// SPDX-License-Identifier: Apache-2.0

package fi

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// rmaDifference is a row in which libfabric's verbs provider and this package behave differently.
type rmaDifference struct {
	provider, ours string
	why            string
	held           string // the test that checks this package's behaviour
}

// rmaInject is the provider's inject size.
const rmaInject = 256

// rmaNotOffered are flags that the provider refuses when a program asks for them, although
// operations may have them. The values are the tests that check fi_rma(3)'s rules for them.
var rmaNotOffered = map[Flags]string{
	Fence:            "TestVMFences",
	DeliveryComplete: "TestDeliveryComplete",
	CommitComplete:   "TestRefusedBeforehand",
}

// rmaDifferences are all differences, by session and row.
var rmaDifferences = map[string]rmaDifference{
	// The provider ignores flags for writes in a read.
	"connected: read, FI_INJECT": {
		"OK; rma|read", "EOPNOTSUPP",
		"FI_INJECT applies to writes; a flag that is ignored has not been honoured", "TestRefusedBeforehand",
	},
	"connected: read, FI_REMOTE_CQ_DATA": {
		"OK; rma|read", "EOPNOTSUPP",
		"FI_REMOTE_CQ_DATA applies to writes: the peer would wait for data that never comes", "TestRefusedBeforehand",
	},
	// It does not offer FI_COMMIT_COMPLETE, and ignores it.
	"connected: write, FI_COMMIT_COMPLETE": {
		"OK; rma|write", "EOPNOTSUPP",
		"nothing was made durable: the completion would say what is not so", "TestRefusedBeforehand",
	},
	"connected: read, FI_COMMIT_COMPLETE": {
		"OK; rma|read", "EOPNOTSUPP",
		"FI_COMMIT_COMPLETE applies to writes", "TestRefusedBeforehand",
	},

	// Limits of the provider, stated in its attributes.
	"connected: several remote ranges: write": {
		"rma_iov_limit", "OK; rma|write",
		"a message may have several remote ranges: there is a work request for each", "TestVMOperations",
	},
	"connected: several remote ranges: read": {
		"rma_iov_limit", "OK; rma|read",
		"the same", "TestVMOperations",
	},
	"connected: more spans than the limit": {
		"iov_limit", "OK; rma|write",
		"more spans than a work request takes make several work requests", "TestVMRandomOperations",
	},
	"connected: inject of one byte too many": {
		"EAGAIN", "ErrLimit",
		"both refuse, the provider as if another attempt could help; ours says the limit", "TestRefusedBeforehand",
	},
	"connected: data of 33 bits": {
		"OK; rma|write; peer: rma|remote-write|remote-cq-data 5", "ErrRange",
		"the provider drops what is above cq_data_size; nobody is told", "TestRefusedBeforehand",
	},

	// The provider does not report an error.
	"connected: wrong key: fi_inject_write": {
		"OK; dead", "OK; status 10; dead",
		"fi_endpoint(3): operations that fail generate completions, even if none is requested", "TestVMLibfabric",
	},
	"selective: wrong key: fi_write": {
		"OK; dead", "OK; status 10; dead",
		"the same", "TestVMSelective",
	},
	"selective: wrong key: fi_read": {
		"OK; dead", "OK; status 10; dead",
		"the same", "TestVMSelective",
	},

	// The provider makes a completion without FI_COMPLETION.
	"selective: read, FI_TRANSMIT_COMPLETE": {
		"OK; rma|read", "OK",
		"fi_endpoint(3): FI_COMPLETION alone asks for a completion; the level says when it comes", "TestVMLibfabric",
	},
	"selective: read, FI_DELIVERY_COMPLETE": {
		"OK; rma|read", "OK",
		"the same", "TestVMLibfabric",
	},

	// This package finds the error in the descriptor, and keeps the connection.
	"connected: out of bounds by the descriptor: fi_write": {
		"OK; status 10; dead", "ErrRange",
		"a Key knows its size: nothing is posted, the connection lives", "TestRefusedBeforehand",
	},
	"connected: out of bounds by the descriptor: fi_read": {
		"OK; status 10; dead", "ErrRange",
		"the same", "TestRefusedBeforehand",
	},
	"connected: not allowed by the descriptor: fi_write": {
		"OK; status 10; dead", "EACCES",
		"a Key knows what its owner allows", "TestRefusedBeforehand",
	},
	"connected: not allowed by the descriptor: fi_read": {
		"OK; status 10; dead", "EACCES",
		"the same", "TestRefusedBeforehand",
	},
	"connected: out of bounds here": {
		"OK; status 5; dead", "ErrRange",
		"an IOV is a part of an MR, which knows its size", "TestRefusedBeforehand",
	},
}

func TestRMADifferencesAreDocumented(t *testing.T) {
	page := must(os.ReadFile("../docs/reference/fi_rma.md"))(t)
	for name, d := range rmaDifferences {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/reference/fi_rma.md does not have %q", name)
		}
		if d.why == "" || d.held == "" {
			t.Errorf("%s: no reason, or no test", name)
		}
	}
}

var (
	testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	requiredTest = regexp.MustCompile(`(?m)^(?:fi|internal/engine) (TestVM\w+)$`)
)

// The tests named in the table are tests of this package or of the engine, and those of the
// testbed must have run there.
func TestRMADifferencesAreHeld(t *testing.T) {
	ours := namesIn(t, "*_test.go", testFunction)
	maps.Copy(ours, namesIn(t, "../internal/engine/*_test.go", testFunction))
	required := namesIn(t, "../testbed/required/*.txt", requiredTest)
	held := func(what, test string) {
		switch {
		case !ours[test]:
			t.Errorf("%s: there is no test %q", what, test)
		case strings.HasPrefix(test, "TestVM") && !required[test]:
			t.Errorf("%s: no list in testbed/required has %s", what, test)
		}
	}
	for name, d := range rmaDifferences {
		held(name, d.held)
	}
	for flag, test := range rmaNotOffered {
		held(flag.String(), test)
	}
}

// namesIn returns the matches of a pattern's group in some files.
func namesIn(t *testing.T, files string, pattern *regexp.Regexp) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range must(filepath.Glob(files))(t) {
		for _, m := range pattern.FindAllSubmatch(must(os.ReadFile(file))(t), -1) {
			names[string(m[1])] = true
		}
	}
	return names
}
