// Runs the blocks of a kernel one after the other, their threads as fibers where they must meet.
//
// A kernel that reads or writes where nothing is or across alignment, or divides by zero, ends with a message, and the process lives on.
// A warp goes on until all of its threads have ended or wait at the block's barrier; then comes the next warp.
// Threads that wait for each other in vain (a barrier or shuffle in divergent code) end the kernel with a message.

#include <elf.h>
#include <link.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct uint3 {
    unsigned x, y, z;
};
struct TbPlace {  // as in cuda_shim.h
    uint3 thread, block, threads, blocks;
    void* shared;
};
extern "C" {
__thread TbPlace tb_emulated_place;
}

namespace {

constexpr int MOST = 1024, WARP = 32;
constexpr size_t STACK = 128 << 10, GUARD = 4096;
enum State { READY, AT_BARRIER, IN_WARP, ENDED };

#if defined(__x86_64__) && !defined(TB_UCONTEXT)
// Saves what a called function must keep, changes the stack, takes the same back.
asm(R"(
    .text
    .local tb_switch
    .type tb_switch, @function
tb_switch:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
    .size tb_switch, .-tb_switch
)");
extern "C" void tb_switch(void** save, void* load) asm("tb_switch");
struct Context {
    void* sp;
    void start(char* stack, size_t nbytes, void (*entry)()) {
        void** top = (void**)(((size_t)stack + nbytes) & ~(size_t)15) - 2;
        top[0] = (void*)entry, top[1] = nullptr;
        sp = top - 6;
    }
    void go(Context& to) { tb_switch(&sp, to.sp); }
};
#else
#include <ucontext.h>
struct Context {
    ucontext_t c;
    void start(char* stack, size_t nbytes, void (*entry)()) {
        getcontext(&c);
        c.uc_stack.ss_sp = stack, c.uc_stack.ss_size = nbytes, c.uc_link = nullptr;
        makecontext(&c, entry, 0);
    }
    void go(Context& to) { swapcontext(&c, &to.c); }
};
#endif

struct Fiber {
    Context context;
    uint3 place;
    State state;
    int line, kind, predicate;
    unsigned mask, met;
};

struct Pool {
    char* stacks = nullptr;
    Fiber fibers[MOST];
    unsigned long long given[MOST], published[MOST];
    Context scheduler;
    int current = 0, count = 0, joined = 0;
    void (*kernel)(void**) = nullptr;
    void** arguments = nullptr;
    ~Pool() {
        if (stacks) munmap(stacks, MOST * STACK);
    }
};
thread_local Pool* pool = nullptr;
thread_local struct Owner {
    ~Owner() { delete pool; }
} owner;

void wait(State state) {
    Fiber& self = pool->fibers[pool->current];
    self.state = state;
    self.context.go(pool->scheduler);
}

void entry() {
    pool->kernel(pool->arguments);
    wait(ENDED);
    abort();
}

void resume(int number) {
    pool->current = number;
    tb_emulated_place.thread = pool->fibers[number].place;
    pool->scheduler.go(pool->fibers[number].context);
}

// Lets every group of lanes go on that has met; whether there was one.
bool release(int first, int last) {
    unsigned alive = 0;
    for (int n = first; n < last; ++n)
        if (pool->fibers[n].state != ENDED) alive |= 1u << (n - first);
    bool any = false;
    for (int n = first; n < last; ++n) {
        Fiber& one = pool->fibers[n];
        if (one.state != IN_WARP) continue;
        unsigned wanted = one.mask & alive;
        bool met = wanted >> (n - first) & 1;
        for (int m = first; m < last && met; ++m)
            if (wanted >> (m - first) & 1) {
                Fiber& other = pool->fibers[m];
                met = other.state == IN_WARP && other.line == one.line && other.mask == one.mask;
            }
        if (!met) continue;
        for (int m = first; m < last; ++m)
            if (wanted >> (m - first) & 1) {
                pool->published[m] = pool->given[m];
                pool->fibers[m].state = READY, pool->fibers[m].met = wanted;
            }
        any = true;
    }
    return any;
}

bool pass_barrier() {
    int line = 0, sum = 0, waiting = 0;
    for (int n = 0; n < pool->count; ++n) {
        Fiber& one = pool->fibers[n];
        if (one.state == ENDED) continue;
        if (one.state != AT_BARRIER || (waiting && one.line != line)) return false;
        line = one.line, sum += one.predicate, ++waiting;
    }
    for (int n = 0; n < pool->count; ++n) {
        Fiber& one = pool->fibers[n];
        if (one.state != AT_BARRIER) continue;
        one.state = READY;
        one.predicate = one.kind == 1 ? sum : one.kind == 2 ? sum == waiting : sum > 0;
    }
    return waiting > 0;
}

bool run_block(bool backwards, char* message, size_t room) {
    for (int n = 0; n < pool->count; ++n) {
        Fiber& fiber = pool->fibers[n];
        unsigned x = tb_emulated_place.threads.x, y = tb_emulated_place.threads.y;
        fiber.place = {n % x, n / x % y, n / x / y};
        fiber.state = READY;
        fiber.context.start(pool->stacks + n * STACK + GUARD, STACK - GUARD, entry);
    }
    int warps = (pool->count + WARP - 1) / WARP;
    for (;;) {
        int ended = 0;
        for (int w = 0; w < warps; ++w) {
            int first = (backwards ? warps - 1 - w : w) * WARP;
            int last = first + WARP < pool->count ? first + WARP : pool->count;
            do {
                for (int i = first; i < last; ++i) {
                    int n = backwards ? first + last - 1 - i : i;
                    if (pool->fibers[n].state == READY) resume(n);
                }
            } while (release(first, last));
            for (int n = first; n < last; ++n) ended += pool->fibers[n].state == ENDED;
        }
        if (ended == pool->count) return true;
        if (pass_barrier()) continue;
        size_t at = snprintf(message, room, "threads wait for each other in vain:");
        for (int n = 0, said = 0; n < pool->count && said < 4 && at < room; ++n) {
            Fiber& one = pool->fibers[n];
            if (one.state == ENDED || (said && one.line == pool->fibers[n - 1].line)) continue;
            const char* what = one.state == AT_BARRIER ? "__syncthreads" : "a warp's exchange";
            at += snprintf(message + at, room - at, " thread %d at %s of line %d;", n, what, one.line), ++said;
        }
        return false;
    }
}

// The module's thread-local memory is its __shared__ memory: what a block finds in it is not defined.
struct Search {
    size_t address, module, nbytes;
};
int find(dl_phdr_info* info, size_t, void* data) {
    Search* search = (Search*)data;
    bool inside = false;
    size_t nbytes = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr)& part = info->dlpi_phdr[i];
        size_t start = info->dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_LOAD && search->address >= start && search->address < start + part.p_memsz) inside = true;
        if (part.p_type == PT_TLS) nbytes = part.p_memsz;
    }
    if (!inside) return 0;
    search->module = info->dlpi_tls_modid, search->nbytes = nbytes;
    return 1;
}

// Faults: back to tb_run, from wherever the kernel was.
thread_local sigjmp_buf* rescue = nullptr;
thread_local void* fault_address = nullptr;
struct sigaction before[NSIG];

void fault(int signal, siginfo_t* info, void*) {
    if (rescue) {
        fault_address = info->si_addr;
        siglongjmp(*rescue, signal);
    }
    sigaction(signal, &before[signal], nullptr);  // not ours: let it come again
}

thread_local struct FaultStack {
    stack_t stack = {};
    void use() {
        if (stack.ss_sp) return;
        stack.ss_sp = malloc(stack.ss_size = 64 << 10);
        sigaltstack(&stack, nullptr);
    }
    ~FaultStack() {
        if (!stack.ss_sp) return;
        stack_t none = {};
        none.ss_flags = SS_DISABLE;
        sigaltstack(&none, nullptr);
        free(stack.ss_sp);
    }
} fault_stack;

}  // namespace

extern "C" {

// Once, when the library is loaded.
void tb_catch_faults() {
    const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};  // the last two: the sanitizer's trap
    for (int signal : signals) {
        struct sigaction action = {};
        action.sa_sigaction = fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(signal, &action, &before[signal]);
    }
}

int tb_emulated_barrier(int line, int kind, int predicate) {
    Fiber& self = pool->fibers[pool->current];
    self.line = line, self.kind = kind, self.predicate = predicate;
    wait(AT_BARRIER);
    return self.predicate;
}

unsigned tb_emulated_exchange(int line, unsigned mask, unsigned long long value) {
    Fiber& self = pool->fibers[pool->current];
    self.line = line, self.mask = mask;
    pool->given[pool->current] = value;
    wait(IN_WARP);
    return self.met;
}

unsigned long long tb_emulated_lane(int lane) { return pool->published[(pool->current & ~(WARP - 1)) + lane]; }

int tb_emulated_lane_id() { return pool->current & (WARP - 1); }

// Bytes of static __shared__ memory of the module that holds this address; its module number for the below.
size_t tb_shared(void* address, size_t* module) {
    Search search = {(size_t)address, 0, 0};
    dl_iterate_phdr(find, &search);
    *module = search.module;
    return search.nbytes;
}

struct TlsIndex {
    size_t module, offset;
};
void* __tls_get_addr(TlsIndex*);

// meet: whether its threads must be fibers. Returns 0; 1 with a message for threads that wait in vain, 2 for a fault,
// 3 for an access to an address that is no multiple of the type's alignment.
int tb_run(void (*kernel)(void**), void** arguments, const unsigned* grid, const unsigned* block, size_t nbytes,
           size_t module, size_t static_nbytes, int meet, int backwards, char* message, size_t room) {
    TbPlace& place = tb_emulated_place;
    place.threads = {block[0], block[1], block[2]}, place.blocks = {grid[0], grid[1], grid[2]};
    int count = block[0] * block[1] * block[2];
    if (meet) {
        (void)&owner;
        if (!pool) pool = new Pool;
        if (!pool->stacks) {
            void* got = mmap(nullptr, MOST * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (got == MAP_FAILED) return snprintf(message, room, "no memory for stacks"), 1;
            pool->stacks = (char*)got;
            for (int n = 0; n < MOST; ++n) mprotect(pool->stacks + n * STACK, GUARD, PROT_NONE);
        }
        pool->kernel = kernel, pool->arguments = arguments, pool->count = count;
    }
    place.shared = nbytes ? aligned_alloc(256, (nbytes + 255) / 256 * 256) : nullptr;
    TlsIndex index = {module, 0};
    char* fixed = static_nbytes ? (char*)__tls_get_addr(&index) : nullptr;
    size_t blocks = (size_t)grid[0] * grid[1] * grid[2];
    volatile int status = 0;
    fault_stack.use();
    sigjmp_buf here;
    if (int signal = sigsetjmp(here, 1)) {
        rescue = nullptr;
        bool misaligned = signal == SIGILL || signal == SIGTRAP;
        const char* what = signal == SIGFPE ? "an integer was divided by zero"
                           : misaligned     ? "misaligned access to memory, code"
                                            : "illegal access to memory";
        snprintf(message, room, "%s at %p by thread (%u, %u, %u) of block (%u, %u, %u)", what, fault_address, place.thread.x,
                 place.thread.y, place.thread.z, place.block.x, place.block.y, place.block.z);
        free(place.shared);
        return misaligned ? 3 : 2;
    }
    rescue = &here;
    for (size_t i = 0; i < blocks && !status; ++i) {
        size_t b = backwards ? blocks - 1 - i : i;
        place.block = {(unsigned)(b % grid[0]), (unsigned)(b / grid[0] % grid[1]), (unsigned)(b / grid[0] / grid[1])};
        if (nbytes) memset(place.shared, 0xFF, nbytes);
        if (fixed) memset(fixed, 0xFF, static_nbytes);
        if (meet) {
            status = !run_block(backwards, message, room);
            continue;
        }
        for (int k = 0; k < count; ++k) {
            unsigned n = backwards ? count - 1 - k : k;
            place.thread = {n % block[0], n / block[0] % block[1], n / block[0] / block[1]};
            kernel(arguments);
        }
    }
    rescue = nullptr;
    free(place.shared);
    return status;
}
}
