package doctest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// watch follows a session from block to block and ends it when one of them
// takes too long.
type watch struct {
	limits map[int]time.Duration // by the block's line
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the session can announce no more

	mu    sync.Mutex
	where string
	timer *time.Timer
}

// follow reads what the session announces: a block's line as the block begins.
func (w *watch) follow(progress io.Reader) {
	defer close(w.done)
	for s := bufio.NewScanner(progress); s.Scan(); {
		w.enter(s.Text())
	}
}

func (w *watch) enter(announced string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	line, err := strconv.Atoi(announced)
	if err != nil {
		w.where = announced
		return
	}
	w.where = fmt.Sprintf("block at line %d", line)
	limit := w.limits[line]
	w.timer = time.AfterFunc(limit, func() {
		w.cancel(fmt.Errorf("%w of %v", errOvertime, limit))
	})
}

// stop waits for the last announcement and says where the session was.
func (w *watch) stop() string {
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	return w.where
}
