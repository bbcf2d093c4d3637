// SPDX-License-Identifier: Apache-2.0

package cqueue

// A work request's ID contains its send or receive queue, the connection's slot in its
// completion queue, and the request's number. Slots are reused: the generation distinguishes
// the completions of an earlier connection from those of the next one.
const (
	numberBits     = 36
	generationBits = 8
	slotBits       = 18

	generationShift = numberBits
	slotShift       = generationShift + generationBits
	kindShift       = slotShift + slotBits

	numberMask     = 1<<numberBits - 1
	generationMask = 1<<generationBits - 1
	slotMask       = 1<<slotBits - 1

	memberMask = slotMask<<slotShift | generationMask<<generationShift // the bits of an ID that name the member
)

// Member names a connection in the IDs of its work requests.
type Member uint64

// ID returns the ID of a work request: kind is 0 to 3, the connection's own name for its send and
// receive queues, and number counts the work requests of one of these.
func (m Member) ID(kind int, number uint64) uint64 {
	return uint64(kind)<<kindShift | uint64(m) | number&numberMask
}

// Kind returns the kind that an ID was made with.
func Kind(id uint64) int { return int(id >> kindShift) }

// Number returns the number that an ID was made with. The ID has only its lower bits; the caller
// gives a first that is not larger than the number.
func Number(id, first uint64) uint64 { return first + (id-first)&numberMask }

func memberOf(slot int, generation uint8) Member {
	return Member(uint64(slot)<<slotShift | uint64(generation)<<generationShift)
}

func (m Member) slot() int         { return int(m >> slotShift & slotMask) }
func (m Member) generation() uint8 { return uint8(m >> generationShift) }
