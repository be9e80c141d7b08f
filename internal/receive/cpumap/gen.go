package cpumap

//go:generate go tool bpf2go -cc clang-14 -target bpfel -tags linux -no-global-types sortXDP sort_xdp.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../sorter -I../../../bpf -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
