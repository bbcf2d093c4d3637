// SPDX-License-Identifier: Apache-2.0

package nodelist

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpurdma/gpurdma/internal/human"
)

// Bounds of a list.
const (
	MaxNodes = 4 << 10
	maxText  = 1 << 20 // bytes of a hostlist, or of a file
	maxName  = 255     // bytes of a host's name
	maxDigit = 9       // digits of a number in brackets
)

// Expand returns the names that a hostlist of Slurm's stands for: "gpu[01-03,7],login" are gpu01, gpu02,
// gpu03, gpu7 and login. A name may have several brackets; the last one counts fastest. A number keeps the
// width of the first one of its range.
func Expand(list string) (names []string, err error) {
	if len(list) > maxText {
		return nil, fmt.Errorf("the host list has %d bytes, of at most %d", len(list), maxText)
	}
	words, err := split(list)
	if err != nil {
		return nil, err
	}
	for _, word := range words {
		if names, err = appendWord(names, word); err != nil {
			return nil, fmt.Errorf("host list %q: %w", human.Short(word, 80), err)
		}
	}
	return names, nil
}

// split cuts a hostlist at the commas that are not in brackets.
func split(list string) (words []string, err error) {
	start, inside := 0, false
	for i := range len(list) {
		switch c := list[i]; {
		case c == '[' && inside:
			return nil, fmt.Errorf("host list %q: a bracket is opened in another one, at byte %d", human.Short(list, 80), i+1)
		case c == ']' && !inside:
			return nil, fmt.Errorf("host list %q: a bracket is closed that is not open, at byte %d", human.Short(list, 80), i+1)
		case c == '[', c == ']':
			inside = c == '['
		case c == ',' && !inside:
			words = append(words, list[start:i])
			start = i + 1
		}
	}
	if inside {
		return nil, fmt.Errorf("host list %q: a bracket is not closed", human.Short(list, 80))
	}
	return append(words, list[start:]), nil
}

// appendWord expands one word, whose brackets are known to be closed.
func appendWord(names []string, word string) ([]string, error) {
	made := []string{""}
	add := func(suffixes []string) error {
		if len(suffixes) > 0 && len(made) > (MaxNodes-len(names))/len(suffixes) {
			return fmt.Errorf("it stands for more than %d names", MaxNodes)
		}
		next := make([]string, 0, len(made)*len(suffixes))
		for _, m := range made {
			for _, s := range suffixes {
				if len(m)+len(s) > maxName {
					return fmt.Errorf("a name has more than %d bytes", maxName)
				}
				next = append(next, m+s)
			}
		}
		made = next
		return nil
	}
	rest := word
	for rest != "" {
		text, after, found := strings.Cut(rest, "[")
		if err := add([]string{text}); err != nil {
			return nil, err
		}
		if !found {
			break
		}
		numbers, after, _ := strings.Cut(after, "]")
		suffixes, err := ranges(numbers)
		if err != nil {
			return nil, err
		}
		if err := add(suffixes); err != nil {
			return nil, err
		}
		rest = after
	}
	if made[0] == "" {
		return nil, fmt.Errorf("a name is empty")
	}
	if len(names)+len(made) > MaxNodes {
		return nil, fmt.Errorf("there are more than %d names", MaxNodes)
	}
	return append(names, made...), nil
}

// ranges expands what is between two brackets: "01-03,7".
func ranges(text string) (list []string, err error) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := number(first)
		if err != nil {
			return nil, err
		}
		to := from
		if isRange {
			if to, err = number(last); err != nil {
				return nil, err
			}
		}
		switch {
		case to < from:
			return nil, fmt.Errorf("the range %s counts down", part)
		case to-from >= MaxNodes-len(list):
			return nil, fmt.Errorf("[%s] stands for more than %d names", human.Short(text, 40), MaxNodes)
		}
		for n := from; n <= to; n++ {
			list = append(list, fmt.Sprintf("%0*d", len(first), n))
		}
	}
	return list, nil
}

func number(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || len(s) > maxDigit {
		return 0, fmt.Errorf("%q is no number of 1 to %d digits", human.Short(s, 20), maxDigit)
	}
	return int(n), nil
}
