//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The sorter in its XDP form, where a device hands its frames to the host: the
 * frames of bulk connections go on to another CPU, all others to the stack of
 * this one. It changes no frame. */
#include "decide.h"

/* hwq, the adapter's queue by queue id: 1 is this CPU's stack, and from here on
 * it is a CPU's number in frames_by_cpu. */
enum { HWQ_CPU0 = 2 };

/* The loader makes it as large as the machine has CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_cpumap_val));
} frames_by_cpu SEC(".maps");

/* finish is the one way out: it counts, and sends the frame to its CPU. A CPU
 * that the map does not have leaves the frame where it is (the flags are the
 * answer then, Linux 5.3). */
static __always_inline int finish(const struct sorter_config *cfg, struct decision d, __u32 frame_len)
{
	__u32 hwq = cfg ? cfg->hwq[d.queue & (QUEUE_SLOTS - 1)] : 0;

	count_packet(d, frame_len, 1);
	if (hwq < HWQ_CPU0)
		return XDP_PASS;
	return bpf_redirect_map(&frames_by_cpu, hwq - HWQ_CPU0, XDP_PASS);
}

/* "frags": frames in several pieces come here too, whose headers are in the first. */
SEC("xdp.frags")
int sort_xdp(struct xdp_md *ctx)
{
	struct cursor c = { (void *)(long)ctx->data, (void *)(long)ctx->data_end };
	struct decision d = { .queue = QUEUE_PRIMARY, .reason = REASON_OFF };
	__u32 frame_len = bpf_xdp_get_buff_len(ctx);
	struct sorter_config *cfg = config_now();
	struct packet p = {};
	enum parsed what;

	if (!cfg)
		return finish(cfg, d, frame_len);
	what = parse_frame(&c, frame_len, 0, &p);
	d = decide(cfg, what, &p, frame_len, 1);
	return finish(cfg, d, frame_len);
}

char _license[] SEC("license") = "Dual BSD/GPL";
