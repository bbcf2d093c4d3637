// SPDX-License-Identifier: Apache-2.0

package variables

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/placement"
)

// number reads an integer as NCCL does, with strtoll: a text without digits is 0, and
// an empty one is the default.
func number(text string, def int64) int64 {
	text = strings.TrimLeft(text, " \t\n\v\f\r")
	if text == "" {
		return def
	}
	digits, base := text, 10
	sign := strings.HasPrefix(digits, "-")
	digits = strings.TrimPrefix(strings.TrimPrefix(digits, "-"), "+")
	if rest, ok := strings.CutPrefix(strings.ToLower(digits), "0x"); ok {
		digits, base = rest, 16
	} else if len(digits) > 1 && digits[0] == '0' {
		base = 8
	}
	end := 0
	for end < len(digits) {
		if _, err := strconv.ParseUint(digits[end:end+1], base, 8); err != nil {
			break
		}
		end++
	}
	n, err := strconv.ParseInt(digits[:end], base, 64)
	switch {
	case end == 0:
		return 0
	case err != nil: // out of range: NCCL takes the default
		return def
	case sign:
		return -n
	}
	return n
}

// asWord is what a value that is no number looks like to NCCL, for a message.
func asWord(text string) string {
	if text != "" && !strings.ContainsAny(text[:1], "0123456789+- ") {
		return "; NCCL reads the text " + shown(text) + " as 0"
	}
	return ""
}

// maxShown bounds the characters of a value in a message.
const maxShown = 40

// shown is a text of a value for a message: quoted, so that it has no control characters,
// and short.
func shown(text string) string {
	if r := []rune(text); len(r) > maxShown {
		text = string(r[:maxShown]) + "…"
	}
	return strconv.Quote(text)
}

// plain reports a value that can stand in a command line.
func plain(value string) bool {
	return len(value) <= 4*maxShown && !strings.ContainsFunc(value, func(r rune) bool {
		return r > '~' || r <= ' ' || strings.ContainsRune("\\\"'`$&|<>(){}*?!#~", r)
	})
}

// extended is NAME=VALUE with an addition to a value; "" if that is no plain text.
func extended(name, value, addition string) string {
	if !plain(value) {
		return ""
	}
	return name + "=" + value + addition
}

// yes reads a boolean that one of some words turns on, and one of others off, in any
// case of letters.
func yes(text string, on, off []string) placement.Answer {
	text = strings.ToLower(text)
	switch {
	case slices.Contains(on, text):
		return placement.Yes
	case slices.Contains(off, text):
		return placement.No
	}
	return placement.AnswerUnknown
}

// ofUCX reads y, n and their like.
func ofUCX(text string) placement.Answer {
	return yes(text, []string{"y", "yes", "on", "1"}, []string{"n", "no", "off", "0"})
}

// ofLibfabric reads a boolean of libfabric, which ignores all other texts.
func ofLibfabric(text string) placement.Answer {
	return yes(text, []string{"1", "true", "yes", "on"}, []string{"0", "false", "no", "off"})
}

// ofOFI reads a boolean of aws-ofi-nccl.
func ofOFI(text string) placement.Answer {
	switch a := yes(text, []string{"true"}, []string{"false"}); {
	case a != placement.AnswerUnknown:
		return a
	default:
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return placement.AnswerUnknown
		}
		if n == 0 {
			return placement.No
		}
		return placement.Yes
	}
}

// ofMooncake reads a boolean that Mooncake parses.
func ofMooncake(text string) placement.Answer {
	return yes(strings.TrimSpace(text), []string{"1", "true", "yes", "on", "enable"}, []string{"0", "false", "no", "off", "disable"})
}

// ofNVSHMEM reads a boolean of NVSHMEM: any text is on, but for those that begin with 0,
// n or f.
func ofNVSHMEM(text string) bool {
	return text == "" || !strings.ContainsAny(text[:1], "0nNfF")
}

// list cuts a value at commas and drops empty entries.
func list(text string) []string {
	var out []string
	for _, entry := range strings.Split(text, ",") {
		if entry = strings.TrimSpace(entry); entry != "" {
			out = append(out, entry)
		}
	}
	return out
}

// misread is the verdict on a value that a library ignores.
func misread(library, wants string) verdict {
	return warn("%s ignores the value, and uses its default: it takes %s", library, wants).so("correct the value, or take the variable away", "")
}

// onOrOff is the verdict on a boolean of which one side costs something.
func onOrOff(a placement.Answer, ignored, on, off verdict) verdict {
	switch a {
	case placement.Yes:
		return on
	case placement.No:
		return off
	}
	return ignored
}

// version reads "1.21" of the tables; nil without one.
func version(text string) []int {
	if text == "" {
		return nil
	}
	var out []int
	for _, part := range strings.Split(text, ".") {
		n, _ := strconv.Atoi(part)
		out = append(out, n)
	}
	return out
}
