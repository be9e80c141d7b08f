//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* One direction of one link of a lab. fault_path runs first on the adapter's
 * ingress or egress and says of each frame whether it is lost, takes the slow
 * lane, or passes; lane_return runs where the lane gives frames back and sends
 * them on from where they were taken. What is unknown passes. To pass is
 * TC_ACT_UNSPEC, which is TCX_NEXT: the programs behind this one run then. */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* Marks a frame on its way back from the lane ("xlan"). A mark does not
 * survive the way from one namespace to another, so no host can set it. */
#define RETURN_MARK 0x786c616e

enum {
	ETHERTYPE_ARP = 0x0806,
	ETHERTYPE_IP6 = 0x86dd,
	IP6_OFFSET = 14,          /* after an untagged Ethernet header */
	IP6_NEXT_HEADER = 6,      /* RFC 8200 3 */
	IP6_HEADER = 40,
	IP6_HOPOPTS = 8,          /* MLD's hop-by-hop header: a router alert alone (RFC 3810 5) */
	PROTO_HOPOPTS = 0,
	PROTO_ICMP6 = 58,
	ICMP6_CONTROL_MIN = 130,  /* MLD is 130-132 and 143, neighbour discovery 133-137 */
	ICMP6_CONTROL_MAX = 143,
};

/* What became of a frame; the index of its counter. */
enum fault_reason {
	FAULT_PASSED,   /* undisturbed */
	FAULT_LOST,
	FAULT_DIVERTED, /* handed to the lane */
	FAULT_RETURNED, /* came back from the lane */
	FAULT_EXEMPT,   /* ARP, neighbour discovery, MLD */
	FAULT_REASON_MAX,
};

/* Thresholds are compared with a draw of 32 random bits: 0 is never, 1 << 32
 * is always. */
struct fault_settings {
	__u64 seed;
	__u64 loss;
	__u64 reorder;      /* diverts this share when divert_all is 0 */
	__u32 lane_ifindex; /* 0: there is no lane, and none is needed */
	__u32 divert_all;
};
_Static_assert(sizeof(struct fault_settings) == 32, "no padding");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fault_settings);
} settings SEC(".maps");

/* How many frames this direction has numbered. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} frame_number SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FAULT_REASON_MAX);
	__type(key, __u32);
	__type(value, __u64);
} reasons SEC(".maps");

const enum fault_reason *unused_fault_reason __attribute__((unused));

/* Where the lane's frames go, and whether they arrive there or leave. */
const volatile __u32 return_ifindex;
const volatile __u32 return_flags;

static __always_inline int finish(enum fault_reason reason, int verdict)
{
	__u32 key = reason;
	__u64 *count = bpf_map_lookup_elem(&reasons, &key);

	if (count)
		*count += 1; /* per CPU, and programs of one direction do not nest */
	return verdict;
}

/* The finalizer of splitmix64 over the number-th step of its sequence; faults.go
 * has the same. */
static __always_inline __u64 draw(__u64 seed, __u64 number)
{
	__u64 z = seed + (number + 1) * 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static __always_inline int is_exempt(struct __sk_buff *skb)
{
	__u8 next, type;

	if (skb->protocol == bpf_htons(ETHERTYPE_ARP))
		return 1;
	if (skb->protocol != bpf_htons(ETHERTYPE_IP6))
		return 0;
	if (bpf_skb_load_bytes(skb, IP6_OFFSET + IP6_NEXT_HEADER, &next, 1))
		return 0;
	if (next == PROTO_ICMP6) {
		if (bpf_skb_load_bytes(skb, IP6_OFFSET + IP6_HEADER, &type, 1))
			return 0;
	} else if (next == PROTO_HOPOPTS) {
		if (bpf_skb_load_bytes(skb, IP6_OFFSET + IP6_HEADER, &next, 1) || next != PROTO_ICMP6 ||
		    bpf_skb_load_bytes(skb, IP6_OFFSET + IP6_HEADER + IP6_HOPOPTS, &type, 1))
			return 0;
	} else {
		return 0;
	}
	return type >= ICMP6_CONTROL_MIN && type <= ICMP6_CONTROL_MAX;
}

SEC("tcx/ingress")
int fault_path(struct __sk_buff *skb)
{
	struct fault_settings *s;
	__u64 *counter, number, bits;
	__u32 zero = 0;

	if (skb->mark == RETURN_MARK) {
		skb->mark = 0;
		return finish(FAULT_RETURNED, TC_ACT_UNSPEC);
	}
	if (is_exempt(skb))
		return finish(FAULT_EXEMPT, TC_ACT_UNSPEC);
	s = bpf_map_lookup_elem(&settings, &zero);
	counter = bpf_map_lookup_elem(&frame_number, &zero);
	if (!s || !counter) /* never: both have one entry */
		return finish(FAULT_PASSED, TC_ACT_UNSPEC);

	number = __sync_fetch_and_add(counter, 1);
	bits = draw(s->seed, number);
	/* Two independent draws of 32 bits. */
	if ((bits >> 32) < s->loss)
		return finish(FAULT_LOST, TC_ACT_SHOT);
	if (s->lane_ifindex && (s->divert_all || (bits & 0xffffffff) < s->reorder))
		return finish(FAULT_DIVERTED, bpf_redirect(s->lane_ifindex, 0));
	return finish(FAULT_PASSED, TC_ACT_UNSPEC);
}

SEC("tcx/ingress")
int lane_return(struct __sk_buff *skb)
{
	/* volatile: clang 14 makes one 64-bit store of these neighbours, which
	 * the verifier (6.18) refuses; not needed once a build without it loads. */
	*(volatile __u32 *)&skb->mark = RETURN_MARK;
	/* The lane's device has one queue and would have the frame keep it. */
	*(volatile __u32 *)&skb->queue_mapping = 0;
	return bpf_redirect(return_ifindex, return_flags);
}

char _license[] SEC("license") = "Dual BSD/GPL";
