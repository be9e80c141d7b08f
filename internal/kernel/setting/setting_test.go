package setting

import (
	"errors"
	"testing"
	"time"

	"xlane/internal/kernel/ethtool"
	"xlane/internal/kernel/kerneltest"
	"xlane/internal/model"
)

// book is a journal in memory.
type book struct{ list []Setting }

func (b *book) Record(s Setting) error {
	b.list = Remember(b.list, s)
	return nil
}

func (b *book) Recorded() []Setting { return b.list }

func TestLabEverySettingIsRecordedChangedAndPutBack(t *testing.T) {
	pair := kerneltest.NewPair(t, 4)
	h, err := Open(pair.Near)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	b := &book{}
	steps := []struct {
		kind        Kind
		device, key string
		value       string
	}{
		{Feature, pair.NearName, ethtool.GRO, "on"},
		{Feature, pair.NearName, ethtool.TSO4, "off"},
		{Channels, pair.NearName, "rx", "3"},
		{XPSCPUs, pair.NearName, "0", "0"},
		{Sysctl, "", "net.ipv4.tcp_comp_sack_nr", "7"},
		{TxQLen, pair.NearName, "txqlen", "77"},
		{Qdisc, pair.NearName, "root", "mq"},
		{NAPI, pair.NearName, "0", NAPIValue(model.Hold{Timeout: 30 * time.Microsecond, DeferCount: 2}, true)},
	}
	for _, s := range steps {
		if err := h.Set(b, s.kind, s.device, s.key, s.value); err != nil {
			t.Fatalf("%s %s: %v", s.kind, s.key, err)
		}
		now, err := h.read(Setting{Kind: s.kind, Device: s.device, Key: s.key})
		if err != nil || now != s.value {
			t.Errorf("%s %s is %q (%v), want %q", s.kind, s.key, now, err, s.value)
		}
	}
	n := len(b.list)
	for _, s := range steps { // what already is so is neither written nor recorded
		if err := h.Set(b, s.kind, s.device, s.key, s.value); err != nil {
			t.Fatalf("%s %s again: %v", s.kind, s.key, err)
		}
	}
	if len(b.list) != n {
		t.Errorf("%d settings recorded, %d after doing the same again", n, len(b.list))
	}
	for i := len(b.list) - 1; i >= 0; i-- {
		if err := h.Undo(b.list[i]); err != nil {
			t.Errorf("undo %v: %v", b.list[i], err)
		}
	}
	for _, s := range b.list {
		if s.Kind == NAPI { // gone with GRO
			continue
		}
		if now, err := h.read(s); err != nil || now != s.From {
			t.Errorf("%v is %q (%v), want %q as before", s, now, err, s.From)
		}
	}
}

func TestLabASecondChangeKeepsWhatTheFirstFound(t *testing.T) {
	pair := kerneltest.NewPair(t, 2)
	h, err := Open(pair.Near)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	b := &book{}
	before, err := h.read(Setting{Kind: TxQLen, Device: pair.NearName})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"50", "60"} {
		if err := h.Set(b, TxQLen, pair.NearName, "txqlen", v); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.list) != 1 || b.list[0].From != before || b.list[0].To != "60" {
		t.Errorf("recorded %+v, want one change from %s to 60", b.list, before)
	}
}

func TestLabWhatSomebodyElseChangedSinceIsLeft(t *testing.T) {
	pair := kerneltest.NewPair(t, 2)
	h, err := Open(pair.Near)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	b := &book{}
	if err := h.Set(b, Sysctl, "", "net.ipv4.tcp_comp_sack_nr", "7"); err != nil {
		t.Fatal(err)
	}
	if err := h.write(Setting{Kind: Sysctl, Key: "net.ipv4.tcp_comp_sack_nr"}, "9"); err != nil {
		t.Fatal(err)
	}
	if err := h.Undo(b.list[0]); !errors.Is(err, ErrChangedSince) {
		t.Errorf("undo returned %v, want ErrChangedSince", err)
	}
	if now, _ := h.read(b.list[0]); now != "9" {
		t.Errorf("it is %q now, want 9", now)
	}
}

func TestLabWhatHasGoneNeedsNoUndoing(t *testing.T) {
	pair := kerneltest.NewPair(t, 2)
	h, err := Open(pair.Near)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, s := range []Setting{
		{Kind: Feature, Device: "absent", Key: ethtool.GRO, From: "off", To: "on"},
		{Kind: TxQLen, Device: "absent", Key: "txqlen", From: "1000", To: "4"},
		{Kind: Qdisc, Device: "absent", Key: "root", From: "noqueue", To: "mq"},
		{Kind: NAPI, Device: pair.NearName, Key: "9", From: NAPIValue(model.Hold{}, false), To: NAPIValue(model.Hold{}, true)},
	} {
		if err := h.Undo(s); err != nil {
			t.Errorf("undo %v: %v", s, err)
		}
	}
}

func TestTimersOfAQueueAreReadAsWritten(t *testing.T) {
	want := model.Hold{Timeout: 123456 * time.Nanosecond, DeferCount: 9}
	got, threaded, err := parseNAPIValue(NAPIValue(want, true))
	if err != nil || got != want || !threaded {
		t.Errorf("read %+v, %v, %v", got, threaded, err)
	}
	for _, bad := range []string{"", "hold", "hold x defer 1 threaded on", "hold 1s defer -1 threaded on", "hold 1s defer 1 thread on"} {
		if _, _, err := parseNAPIValue(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
