/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* This file defines the maps that the sorter's programs share, and the
 * structs in them. Go types are generated from these. Every object file
 * declares the same maps; the loader makes them once and hands them to each. */
#ifndef XLANE_SORTER_MAPS_H
#define XLANE_SORTER_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "flow.h"

enum queue_id {
	QUEUE_NONE = 0,
	QUEUE_PRIMARY = 1,
	QUEUE_BULKDATA = 2,
	QUEUE_SYSDIST = 3,
	QUEUE_EE = 4,
	QUEUE_COUNT = 5,
	QUEUE_SLOTS = 8, /* arrays are indexed with a mask, which the verifier follows */
};
_Static_assert(QUEUE_COUNT <= QUEUE_SLOTS, "the mask covers every queue");

/* Why a packet went where it went. Each packet counts under exactly one. */
enum reason {
	REASON_NOT_IP,
	REASON_MALFORMED,
	REASON_FRAGMENT,
	REASON_NOT_TCP,
	REASON_UDP,
	REASON_EE,
	REASON_TCP_UNTRACKED, /* TCP without payload, of a connection not in the table */
	REASON_TCP_REFUSED,   /* payload, but the table had no room for the connection */
	REASON_INTERACTIVE,
	REASON_SYSDIST,
	REASON_BULK,
	REASON_WAITING, /* belongs on another queue, older packets are still on this one */
	REASON_OFF,     /* the sorter has no configuration yet */
	REASON_COUNT,
	REASON_SLOTS = 16,
};
_Static_assert(REASON_COUNT <= REASON_SLOTS, "the mask covers every reason");

/* What happened to connections; counted beside the packets. */
enum event {
	EVENT_TRACKED,             /* put into the table */
	EVENT_REPLACED,            /* an idler connection made room */
	EVENT_REFUSED,             /* the table had no room */
	EVENT_REGISTERED,          /* found to be bulk */
	EVENT_REGISTER_REFUSED,    /* bulk, but bulk_max connections are registered */
	EVENT_RELEASED_TURNED,     /* bulk no more: it turned interactive */
	EVENT_RELEASED_SILENT,     /* bulk no more: it fell silent or slow */
	EVENT_RELEASED_CLOSED,     /* bulk no more: FIN, RST or a new connection in its place */
	EVENT_RELEASED_OFF,        /* bulk no more: detection was switched off */
	EVENT_MOVED_PROVED,        /* changed queue: the host had seen its last packet */
	EVENT_MOVED_ACKED,         /* changed queue: the host had acknowledged its last byte */
	EVENT_MOVED_PAUSED,        /* changed queue: after a pause longer than any hold */
	EVENT_COUNT,
};

struct sorter_config {
	__u64 seed0;
	__u64 seed1;
	__u64 silence_ns;      /* a bulk connection without a packet for so long is released */
	__u64 window_ns;       /* streaming must reach the threshold, and keep its pace, within this */
	__u64 guard_ns;        /* pause after which the old queue is taken to be empty of a seen packet */
	__u64 pause_ns;        /* pause after which the old queue is taken to be empty of any packet */
	__u64 forget_ns;       /* a connection without a packet for so long leaves the table */
	__u32 threshold_bytes; /* one-way payload that makes a connection bulk */
	__u32 short_run_bytes; /* a run between two turns below this is an interactive one */
	__u32 window_min_bytes; /* a registered connection that carries less in a window is released */
	__u32 short_turns;     /* so many interactive runs in a row release a bulk connection */
	__u32 bulk_max;        /* registered connections at one time */
	__u32 sysdist_rules;   /* entries in queue_by_addr; 0 saves the look-up */
	__u16 ee_port_first;   /* UDP ports of EE; both 0 = none */
	__u16 ee_port_last;
	__u8 detect;           /* 0: nothing is found, and what was found goes home */
	__u8 same_cpu;         /* all queues are polled on one CPU: seen means processed */
	__u8 hwq[QUEUE_SLOTS]; /* adapter's queue by queue id: index + 1; 0 = shares PRIMARY's */
	__u8 version;          /* LAYOUT_VERSION; 0 = not configured */
};

enum limit {
	/* Raised when a struct in this file changes: a daemon adopts pinned maps of its own layout only. */
	LAYOUT_VERSION = 1,
	BUCKET_WAYS = 8,      /* tags fill one cache line */
	FLOW_BUCKETS = 8192,  /* x 8 = 65,536 connections; the loader may choose another power of two */
	SYSDIST_MAX = 1024,   /* as many as a stack may have DVIPAs (zos.md 1.6) */
	LOCAL_ADDR_MAX = 1024,
};

enum flow_flag {
	FLOW_CLOSING = 1,  /* FIN or RST was seen */
	FLOW_LAST_NEW = 2, /* the last packet sent on carried new payload: to see it arrive proves all before it */
	FLOW_OVERLAP = 4,  /* payload came in that had not seen what the host last sent: no question and answer */
};

/* One connection. Written by three programs: sort (everything but the two
 * fields named), prove (proved_end) and turn (host_end, acked_end). */
struct flow {
	struct flow_key key;
	__u32 streamed;    /* payload bytes in since the last turn */
	__u32 new_end;     /* sequence number after the highest payload byte sent on */
	__u32 proved_end;  /* the same, as seen at the host while a move was pending */
	__u32 acked_end;   /* highest acknowledgement the host sent */
	__u32 host_end;    /* sequence number after the highest payload byte the host sent */
	__u32 turn_end;    /* host_end at the last turn */
	__u8 queue;        /* where its packets go now */
	__u8 want;         /* where they belong */
	__u8 flags;
	__u8 short_runs;   /* interactive runs in a row */
	__u32 window_bytes;
	__u64 last_ns;     /* last packet, coarse clock unless a move is pending */
	__u64 window_ns;   /* start of the window, or of the count that led to registration */
	__u64 registered_ns;
	__u64 bytes;       /* frame bytes while registered */
	__u64 packets;     /* while registered */
	__u32 found_bytes; /* one-way payload when it was registered */
	__u32 moved_bytes; /* one-way payload when its packets first went to BULKDATA */
	__u32 bulk;        /* 1 = registered; changed by compare-and-swap, because sort and sweep count it */
	__u32 pending;     /* 1 = counted as waiting to change queue; likewise */
};
_Static_assert(sizeof(struct flow) == 128, "a flow is two cache lines");

struct flow_bucket {
	__u64 tag[BUCKET_WAYS]; /* hash of the key; 0 = free, 1 = being written */
	struct flow flow[BUCKET_WAYS];
};

/* Shared by all CPUs, changed atomically, rarely. */
struct sorter_state {
	__u64 tracked;    /* connections in the table */
	__u64 registered; /* of these, bulk */
	__u64 pending;    /* of these, waiting to change queue */
	__u64 started_ns;
};

struct sorter_counters {
	__u64 queue_packets[QUEUE_SLOTS];
	__u64 queue_bytes[QUEUE_SLOTS];
	__u64 reason[REASON_SLOTS];
	__u64 event[EVENT_COUNT];
};

struct addr_key {
	__u64 addr[2]; /* as in flow_key */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct sorter_config);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOW_BUCKETS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct flow_bucket);
} flow_by_key SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sorter_state);
} state SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sorter_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SYSDIST_MAX);
	__type(key, struct addr_key);
	__type(value, __u8);
} queue_by_addr SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, LOCAL_ADDR_MAX);
	__type(key, struct addr_key);
	__type(value, __u8);
} local_addr SEC(".maps");

#endif
