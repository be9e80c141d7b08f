package sorter

//go:generate go tool bpf2go -cc clang-14 -target bpfel -tags linux -type reason -type event -type queue_id -type addr_key -type flow -type flow_key -type limit -type flow_flag sort sort.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -target bpfel -tags linux -no-global-types prove prove.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -target bpfel -tags linux -no-global-types turn turn.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
//go:generate go tool bpf2go -cc clang-14 -target bpfel -tags linux -no-global-types sweep sweep.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu
