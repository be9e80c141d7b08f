package nlsock_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"xlane/internal/kernel/kerneltest"
	"xlane/internal/kernel/nlsock"
)

func TestARefusalIsWordedAsTheKernelDid(t *testing.T) {
	plain := errors.New("plain")
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"an error number alone", &netlink.OpError{Op: "receive", Err: unix.ENODEV}, "no such device"},
		{"an error number and a sentence", &netlink.OpError{Op: "receive", Err: unix.EINVAL, Message: "too many"}, "invalid argument (too many)"},
		{"one wrapped in another", fmt.Errorf("ask: %w", &netlink.OpError{Op: "receive", Err: unix.EPERM}), "operation not permitted"},
		{"an error of the library", &netlink.OpError{Op: "validate", Err: plain}, "netlink validate: plain"},
		{"any other error", plain, "plain"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := nlsock.Explain(c.err); got.Error() != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
	if err := nlsock.Explain(&netlink.OpError{Err: unix.ENODEV}); !errors.Is(err, unix.ENODEV) {
		t.Errorf("%v does not wrap its error number", err)
	}
}

func TestAFamilyOrGroupThatDoesNotExistIsNamed(t *testing.T) {
	ns := kerneltest.Namespace(t)
	_, err := nlsock.DialFamily(ns, "no-such-family")
	if want := `resolve generic netlink family "no-such-family": no such file or directory`; !errors.Is(err, unix.ENOENT) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	f, err := nlsock.DialFamily(ns, "netdev")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if id, err := f.Group("mgmt"); err != nil || id == 0 {
		t.Errorf("got %d, %v", id, err)
	}
	_, err = f.Group("no-such-group")
	if want := `find group "no-such-group" of generic netlink family "netdev": no such group`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
