package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"xlane/internal/testenv"
)

// deadSocket leaves a socket file behind that nobody serves.
func deadSocket(t *testing.T) string {
	t.Helper()
	path := socketPath(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheSocketIsForRootAndTheGroupAlone(t *testing.T) {
	path := socketPath(t)
	l, err := Listen(path, "no-such-group-here")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != os.ModeSocket|0o660 {
		t.Errorf("mode is %v", info.Mode())
	}
}

func TestTheSocketIsGivenToTheGroup(t *testing.T) {
	testenv.Root(t)
	group, err := user.LookupGroupId("1") // whatever the host calls it
	if err != nil {
		t.Fatal(err)
	}
	path := socketPath(t)
	l, err := Listen(path, group.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	if st.Uid != 0 || strconv.Itoa(int(st.Gid)) != group.Gid {
		t.Errorf("owner is %d:%d", st.Uid, st.Gid)
	}
}

func TestADeadDaemonsSocketIsReplaced(t *testing.T) {
	path := deadSocket(t)
	// It may also have died between making the socket and naming it.
	if err := os.WriteFile(path+newSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there after Close: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

func TestALiveDaemonsSocketIsRefused(t *testing.T) {
	path := serve(t, sourceFunc(twoInterfaces), nil)
	_, err := Listen(path, "")
	if want := fmt.Sprintf("listen at %q: another daemon serves it", path); !errors.Is(err, ErrInUse) || err.Error() != want {
		t.Errorf("got %v", err)
	}
	stillServes(t, path)
}

func TestALiveSocketWithoutALockIsRefused(t *testing.T) {
	path := socketPath(t)
	foreign, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if _, err := Listen(path, ""); !errors.Is(err, ErrInUse) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the other's socket is gone: %v", err)
	}
}

func TestWhatIsNotASocketIsNotReplaced(t *testing.T) {
	path := socketPath(t)
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, ""); err == nil || !strings.Contains(err.Error(), "a file that is not a socket is there") {
		t.Errorf("got %v", err)
	}
	if kept, err := os.ReadFile(path); err != nil || string(kept) != "precious" {
		t.Errorf("the file holds %q, %v", kept, err)
	}
}

func TestALinkInPlaceOfTheLockIsNotFollowed(t *testing.T) {
	path := socketPath(t)
	if err := os.Symlink("/dev/null", path+lockSuffix); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, ""); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("got %v", err)
	}
}

func TestAPathThatDoesNotFitIsRefused(t *testing.T) {
	if _, err := Listen("/run/"+strings.Repeat("x", 120), ""); err == nil || !strings.Contains(err.Error(), "at most 103 fit") {
		t.Errorf("got %v", err)
	}
}

func TestAnotherDaemonsSocketIsNotRemovedOnClose(t *testing.T) {
	path := socketPath(t)
	l, err := Listen(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the other's socket is gone: %v", err)
	}
}

// helperSocket makes this test binary a daemon that can be killed.
const helperSocket = "XLANE_API_TEST_SOCKET"

func TestMain(m *testing.M) {
	if path := os.Getenv(helperSocket); path != "" {
		l, err := Listen(path, "")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		fmt.Println(Serve(context.Background(), l, Config{Source: sourceFunc(twoInterfaces)}))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Goal: a daemon killed with -9 cannot clean up, yet the next one starts at once.
func TestAfterKillTheNextDaemonTakesTheSocket(t *testing.T) {
	path := socketPath(t)
	daemon := exec.Command(os.Args[0])
	daemon.Env = append(os.Environ(), helperSocket+"="+path)
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = daemon.Process.Kill() }) // again, if the test ended early
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the daemon says %q, %v", line, err)
	}
	stillServes(t, path)
	if _, err := Listen(path, ""); !errors.Is(err, ErrInUse) {
		t.Errorf("beside a live daemon: %v", err)
	}
	if err := daemon.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = daemon.Wait() // it was killed: always an error
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("the killed daemon left no socket: %v", err)
	}
	l, err := Listen(path, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
