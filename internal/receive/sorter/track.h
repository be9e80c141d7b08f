/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* This file changes what a connection in the table is: bulk or not, waiting to
 * change queue or not, with the shared counts of both. A connection is changed
 * by the sorter on the CPU that has its packet, and by the sweeper once it has
 * been silent; what both count is changed by compare-and-swap. */
#ifndef XLANE_SORTER_TRACK_H
#define XLANE_SORTER_TRACK_H

#include "flowtable.h"

/* unregister makes a bulk connection an ordinary one again. Where it belongs
 * then is for the caller to say. */
__noinline int unregister(struct flow *f, enum event why)
{
	struct sorter_state *s = state_shared();

	if (!f) /* never; the verifier looks at this function by itself */
		return 0;
	if (!s || !f->bulk || __sync_val_compare_and_swap(&f->bulk, 1, 0) != 1)
		return 0;
	__sync_fetch_and_sub(&s->registered, 1);
	f->short_runs = 0;
	f->streamed = 0;
	count_event(why);
	return 1;
}

/* arrive ends a wait: the connection's queue is the one it belongs on. */
static __always_inline void arrive(struct flow *f)
{
	struct sorter_state *s = state_shared();

	if (s && __sync_val_compare_and_swap(&f->pending, 1, 0) == 1)
		__sync_fetch_and_sub(&s->pending, 1);
}

/* set_want says where a connection belongs, and keeps the number of those
 * that wait to move. */
static __always_inline void set_want(struct flow *f, __u8 want)
{
	struct sorter_state *s = state_shared();

	if (!s || f->want == want)
		return;
	f->want = want;
	if (want == f->queue) {
		arrive(f);
	} else if (__sync_val_compare_and_swap(&f->pending, 0, 1) == 0) {
		/* what was seen before somebody looked proves nothing */
		f->proved_end = f->new_end - 1;
		f->acked_end = f->new_end - 1;
		__sync_fetch_and_add(&s->pending, 1);
	}
}

#endif
