// Work-items of OpenCL C on this machine's processor: what items.c, instructions.c and hopper.c share.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

enum { READY, AT_BARRIER, AT_WARP, POLLING, DONE };
enum { STACK = 1 << 16, MOST_ITEMS = 1024, MOST_GROUPS = 64, MOST_REGIONS = 64, MOST_SECONDS = 6 };
// How a launch goes: items and groups from the last to the first; copies as late as may be; groups
// side by side instead of one after another, and 32 items of a group as far ahead as they can go, or
// where copies are late 128.
enum { BACKWARDS = 1, LATE = 2, TOGETHER = 4 };
enum { F16, BF16, TF32, S8, U8 };

typedef struct { u32 to; u64 from; int size, wanted, group; } Copy;
typedef struct {
    void *sp;
    int state, item, pending, room, committed;
    Copy *copies;
    int (*ready)(void *);  // of one that is POLLING
    void *what;
} Item;
typedef struct { int count, kind; void *lane[32]; } Warp;
typedef struct {
    Item items[MOST_ITEMS];
    Warp warps[MOST_ITEMS / 32];
    u64 id;
    int begun, over, yielded, late;
    char *stacks, *local;
} Group;

extern Group *group;  // that runs, and its work-item
extern Item *self;
extern int mode;

void leave(void);  // the work-item lets others run
void wrong(const char *what, u64 at, u64 size);  // ends the launch
void check(u64 at, u64 size, int writes);
void aligned(u64 at, u64 size);
void *local_at(u32 address, u64 size, int writes);
void wait_until(int (*ready)(void *), void *what);
// Goes on once all lanes of a warp are here; `what` is done once, with what each of them gave.
void meet(int kind, void *mine, void (*what)(void **lanes));
float real_term(int dtype, u32 word, int i);
int whole_term(int dtype, u32 word, int i);
int bring_one(void);  // of copies of boxes that are late; 0 if there is none
void clear_hopper(void);
void clear_boxes(void);
