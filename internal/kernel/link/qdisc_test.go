package link

import (
	"testing"

	"xlane/internal/kernel/kerneltest"
)

func TestLabTheRootQdiscIsReplacedAndTakenAway(t *testing.T) {
	pair := kerneltest.NewPair(t, 2)
	conn, err := Dial(pair.Near)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, kind := range []string{NoQueue, "mq", "mq", NoQueue} {
		l, err := conn.ByName(pair.NearName)
		if err != nil {
			t.Fatal(err)
		}
		if l.Qdisc != kind {
			if err := conn.SetRootQdisc(pair.NearName, kind); err != nil {
				t.Fatal(err)
			}
		}
		if l, err = conn.ByName(pair.NearName); err != nil || l.Qdisc != kind {
			t.Fatalf("the root qdisc is %q (%v), want %q", l.Qdisc, err, kind)
		}
	}
	if err := conn.SetRootQdisc(pair.NearName, "no-such-qdisc"); err == nil {
		t.Error("a qdisc that does not exist was taken")
	}
	if err := conn.SetRootQdisc("absent", "mq"); err == nil {
		t.Error("a device that does not exist was taken")
	}
}
