package cpu

import (
	"math/rand"
	"strings"
	"testing"
	"time"

	"xlane/internal/testenv"
)

func TestAListIsReadAndWritten(t *testing.T) {
	for _, c := range []struct{ name, list, want, mask string }{
		{"one CPU", "0", "0", "1"},
		{"a range", "0-3", "0-3", "f"},
		{"ranges that touch become one", "0-1,2-3", "0-3", "f"},
		{"unordered and repeated", "8,1,8,1-2", "1-2,8", "106"},
		{"a trailing newline", "0-1\n", "0-1", "3"},
		{"nothing", "\n", "", "0"},
		{"over one group of 32", "31-32", "31-32", "1,80000000"},
		{"over one word of 64", "63-64", "63-64", "1,80000000,00000000"},
		{"the last that fits", "1023", "1023", "80000000" + strings.Repeat(",00000000", 31)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := ParseList(c.list)
			if err != nil {
				t.Fatal(err)
			}
			if s.String() != c.want || s.Mask() != c.mask {
				t.Errorf("got %q and mask %q, want %q and %q", s, s.Mask(), c.want, c.mask)
			}
		})
	}
}

func TestAListThatIsWrongSaysWhatIsWrong(t *testing.T) {
	for list, want := range map[string]string{
		"3-1":   `read CPU list "3-1": the range "3-1" runs backwards`,
		"1024":  `read CPU list "1024": 1024 is over the limit of 1023`,
		"0,x":   `read CPU list "0,x": "x" is not a number`,
		"0,":    `read CPU list "0,": "" is not a number`,
		"-1":    `read CPU list "-1": "" is not a number`,
		"0-1-2": `read CPU list "0-1-2": "1-2" is not a number`,
	} {
		if _, err := ParseList(list); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", list, err, want)
		}
	}
}

func TestAMaskIsRead(t *testing.T) {
	for mask, want := range map[string]string{
		"0\n":                                 "",
		"3":                                   "0-1",
		"00000000,00000003":                   "0-1",
		"80000000,00000000":                   "63",
		"ffffffff,00000000,00000001":          "0,64-95",
		strings.Repeat("00000000,", 40) + "1": "0",
	} {
		s, err := ParseMask(mask)
		if err != nil || s.String() != want {
			t.Errorf("%q: got %q, %v, want %q", mask, s, err, want)
		}
	}
	for _, mask := range []string{"", "g", "123456789", "1" + strings.Repeat(",00000000", 32)} {
		if s, err := ParseMask(mask); err == nil {
			t.Errorf("%q: got %q, want an error", mask, s)
		}
	}
}

func TestAnySetSurvivesBothNotations(t *testing.T) {
	random := testenv.Rand(t)
	for range 500 {
		s := randomSet(random)
		fromList, err := ParseList(s.String())
		if err != nil || fromList != s {
			t.Fatalf("list %q: got %q, %v", s, fromList, err)
		}
		fromMask, err := ParseMask(s.Mask())
		if err != nil || fromMask != s {
			t.Fatalf("mask %q: got %q, %v", s.Mask(), fromMask, err)
		}
		if Of(s.Members()...) != s || len(s.Members()) != s.Len() {
			t.Fatalf("members of %q are %v", s, s.Members())
		}
	}
}

func randomSet(random *rand.Rand) Set {
	var s Set
	for range random.Intn(40) {
		s = s.With(random.Intn(Max))
	}
	return s
}

func TestMembersOutOfRangeAreLeftOut(t *testing.T) {
	s := Of(-1, 0, Max, 7)
	if s.String() != "0,7" || s.Has(-1) || s.Has(Max) || s.Without(-1).Without(7).String() != "0" {
		t.Errorf("got %q", s)
	}
}

const statText = `cpu  300 0 0 5000 25 0 0 0 0 0
cpu0 100 0 0 2000 25 0 0 0 0 0
cpu2 200 0 0 3000 0 0 0 0 0 0
intr 12345 0 9
ctxt 99
`

func TestIdleTimeIsReadPerCPU(t *testing.T) {
	idle, err := parseStat(strings.NewReader(statText))
	if err != nil {
		t.Fatal(err)
	}
	if len(idle) != 2 || idle[0] != 20250*time.Millisecond || idle[2] != 30*time.Second {
		t.Errorf("got %v", idle)
	}
	for _, bad := range []string{"", "intr 1\n", "cpu0 1 2 3\n", "cpu0 1 2 3 x 5 6\n", "cpu0 1 2 3 4 5"} {
		if got, err := parseStat(strings.NewReader(bad)); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func TestBusyIsWallTimeLessIdleTime(t *testing.T) {
	start := time.Unix(1000, 0)
	before := Times{At: start, Idle: map[int]time.Duration{0: time.Second, 1: time.Second, 2: time.Second, 3: time.Second}}
	after := Times{At: start.Add(time.Second), Idle: map[int]time.Duration{
		0: 1250 * time.Millisecond,
		1: 2010 * time.Millisecond, // the step of 10 ms can exceed the wall time
		2: 990 * time.Millisecond,  // idle time seen to go back
		4: time.Second,             // came online meanwhile
	}}
	got := Busy(before, after)
	want := map[int]time.Duration{0: 750 * time.Millisecond, 1: 0, 2: time.Second}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for n, d := range want {
		if got[n] != d {
			t.Errorf("CPU %d: got %v, want %v", n, got[n], d)
		}
	}
}

func TestThisMachineIsRead(t *testing.T) {
	online, err := Online()
	if err != nil || online.Empty() {
		t.Fatalf("got %q, %v", online, err)
	}
	times, err := Read(time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range online.Members() {
		if _, ok := times.Idle[n]; !ok {
			t.Errorf("CPU %d is online and not listed", n)
		}
	}
}
