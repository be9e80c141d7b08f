// Package cpu reads which CPUs there are and how long each was idle, and
// reads and writes sets of CPUs in the kernel's two notations. Who runs where
// it leaves to package thread.
package cpu

import (
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"strings"
)

// Max is the number of CPUs (or queues) a Set can hold. It is CPU_SETSIZE of
// the C library, which sched_setaffinity(2) documents.
const Max = 1024

// Set is a set of small numbers: CPUs, or the queues in an xps_rxqs mask. The
// zero value is empty. Sets compare with ==.
type Set struct{ words [Max / 64]uint64 }

// Of returns the set of the given numbers; those out of 0…Max-1 are left out.
func Of(members ...int) Set {
	var s Set
	for _, m := range members {
		s = s.With(m)
	}
	return s
}

// With returns the set with one more member. Out of 0…Max-1 nothing is added.
func (s Set) With(m int) Set {
	if m >= 0 && m < Max {
		s.words[m/64] |= 1 << (m % 64)
	}
	return s
}

// Without returns the set less one member.
func (s Set) Without(m int) Set {
	if m >= 0 && m < Max {
		s.words[m/64] &^= 1 << (m % 64)
	}
	return s
}

// Has reports whether m is in the set.
func (s Set) Has(m int) bool {
	return m >= 0 && m < Max && s.words[m/64]&(1<<(m%64)) != 0
}

// Empty reports whether the set has no member.
func (s Set) Empty() bool { return s == Set{} }

// Len returns the number of members.
func (s Set) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// Members lists the set in ascending order.
func (s Set) Members() []int {
	members := make([]int, 0, s.Len())
	for i, w := range s.words {
		for ; w != 0; w &= w - 1 {
			members = append(members, i*64+bits.TrailingZeros64(w))
		}
	}
	return members
}

// String writes the set as a list: "0-3,8". The empty set is the empty string.
func (s Set) String() string {
	var b strings.Builder
	for i := 0; i < Max; i++ {
		if !s.Has(i) {
			continue
		}
		last := i
		for s.Has(last + 1) {
			last++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(i))
		if last > i {
			b.WriteString("-" + strconv.Itoa(last))
		}
		i = last
	}
	return b.String()
}

// Mask writes the set as sysfs does: comma-separated groups of 32 bits in
// hexadecimal, most significant first, no group more than needed.
func (s Set) Mask() string {
	groups := make([]string, 0, 2*len(s.words))
	for i := 2*len(s.words) - 1; i >= 0; i-- {
		g := uint32(s.words[i/2] >> (32 * (i % 2)))
		if len(groups) == 0 && g == 0 && i > 0 {
			continue
		}
		format := "%08x"
		if len(groups) == 0 {
			format = "%x"
		}
		groups = append(groups, fmt.Sprintf(format, g))
	}
	return strings.Join(groups, ",")
}

// ParseList reads "0-3,8", as in /sys/devices/system/cpu/online and in what
// operators write. The empty string is the empty set.
func ParseList(list string) (Set, error) {
	var s Set
	list = strings.TrimSpace(list)
	if list == "" {
		return s, nil
	}
	for _, part := range strings.Split(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		first, err := parseMember(low)
		if err != nil {
			return Set{}, fmt.Errorf("read CPU list %q: %w", list, err)
		}
		last, err := parseMember(high)
		if err != nil {
			return Set{}, fmt.Errorf("read CPU list %q: %w", list, err)
		}
		if last < first {
			return Set{}, fmt.Errorf("read CPU list %q: the range %q runs backwards", list, part)
		}
		for m := first; m <= last; m++ {
			s = s.With(m)
		}
	}
	return s, nil
}

func parseMember(s string) (int, error) {
	v, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	if v >= Max {
		return 0, fmt.Errorf("%d is over the limit of %d", v, Max-1)
	}
	return int(v), nil
}

// ParseMask reads a mask as sysfs writes it: "3", "00000000,00000003".
func ParseMask(mask string) (Set, error) {
	var s Set
	mask = strings.TrimSpace(mask)
	groups := strings.Split(mask, ",")
	for i, g := range groups {
		v, err := strconv.ParseUint(g, 16, 32)
		if err != nil {
			return Set{}, fmt.Errorf("read mask %q: %q is not a group of 32 bits in hexadecimal", mask, g)
		}
		at := len(groups) - 1 - i
		if v != 0 && at >= 2*len(s.words) {
			return Set{}, fmt.Errorf("read mask %q: a bit is over the limit of %d", mask, Max-1)
		}
		if v != 0 {
			s.words[at/2] |= v << (32 * (at % 2))
		}
	}
	return s, nil
}

// Online returns the CPUs that run now.
func Online() (Set, error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return Set{}, fmt.Errorf("read online CPUs: %w", err)
	}
	return ParseList(string(b))
}
