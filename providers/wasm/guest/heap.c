/*
 * The guest's heap: blocks of any size side by side, so that a program gets nearly all of the memory that it may have.
 *
 * libc's allocator rounds every size up to a power of two, which halves what there is for blocks of a little over 1 MiB.
 * Here a block is as long as asked, with eight bytes before it: the length of the block below, and its own with a mark in the
 * lowest bit while it is in use. Free blocks are in lists by size class, sixteen to a power of two, and are merged with free
 * neighbours at once. Nothing is ever given back to the host: an instance runs one program.
 */
#include <stdint.h>
#include <string.h>

enum { HEAD = 8, LEAST = 16, PAGE = 65536, CLASSES = 416, LOOKS = 64, IN_USE = 1 };

typedef struct block {
    uint32_t below;             /* length of the block below, 0 for the first of a region */
    uint32_t length;            /* with the head; | IN_USE */
    struct block *next, *back;  /* only while it is free */
} block;

static block *lists[CLASSES];
static uint32_t filled[CLASSES / 32];
static block *top; /* the mark in use, of the length of a head, at the end of the last region */

static uint32_t length_of(const block *b) { return b->length & ~(uint32_t)IN_USE; }
static block *above(block *b) { return (block *)((char *)b + length_of(b)); }
static block *below(block *b) { return (block *)((char *)b - b->below); }

static unsigned class_of(uint32_t length)
{
    if (length < 256) return length >> 3;
    unsigned log = 31 - (unsigned)__builtin_clz(length);
    return 32 + ((log - 8) << 4) + ((length >> (log - 4)) & 15);
}

static void take_out(block *b)
{
    unsigned class = class_of(b->length);
    if (b->next) b->next->back = b->back;
    if (b->back) b->back->next = b->next;
    else if (!(lists[class] = b->next)) filled[class / 32] &= ~(1u << class % 32);
}

/* Marks `length` bytes at `b` as free, with a free neighbour on either side. The neighbour above knows how long it is. */
static void put_in(block *b, uint32_t length)
{
    block *other = (block *)((char *)b + length);
    if (!(other->length & IN_USE)) {
        take_out(other);
        length += other->length;
    }
    if (b->below && !(below(b)->length & IN_USE)) {
        b = below(b);
        take_out(b);
        length += b->length;
    }
    b->length = length;
    above(b)->below = length;
    unsigned class = class_of(length);
    b->back = NULL;
    b->next = lists[class];
    if (b->next) b->next->back = b;
    lists[class] = b;
    filled[class / 32] |= 1u << class % 32;
}

/* Makes a block in use `wanted` bytes long; what is left above it is free. */
static void cut(block *b, uint32_t wanted)
{
    uint32_t rest = length_of(b) - wanted;
    if (rest < LEAST) return;
    b->length = wanted | IN_USE;
    block *other = above(b);
    other->below = wanted;
    put_in(other, rest);
}

/* More memory, so that a free block of `wanted` bytes is at the end. False when there is none to be had. */
static int grow(uint32_t wanted)
{
    uint32_t end = (uint32_t)__builtin_wasm_memory_size(0) * PAGE;
    int joins = top && (uint32_t)(uintptr_t)top + HEAD == end;
    uint32_t there = joins && top->below && !(below(top)->length & IN_USE) ? top->below : 0;
    uint32_t missing = wanted - (there < wanted ? there : wanted) + (joins ? 0 : HEAD + LEAST);
    uint32_t pages = (missing + PAGE - 1) / PAGE;
    if (!pages) pages = 1;
    if (__builtin_wasm_memory_grow(0, pages) == (size_t)-1) return 0;
    block *first = joins ? top : (block *)(uintptr_t)end;
    if (!joins) first->below = 0;
    uint32_t length = pages * PAGE - (joins ? 0 : HEAD);
    top = (block *)((char *)first + length);
    top->length = HEAD | IN_USE;
    put_in(first, length);
    return 1;
}

static block *found(uint32_t wanted)
{
    unsigned class = class_of(wanted);
    block *b = lists[class];
    for (int i = 0; b && i < LOOKS; i++, b = b->next) if (b->length >= wanted) return b;
    class++; /* whatever is there is long enough */
    uint32_t bits = class < CLASSES ? filled[class / 32] & ~0u << class % 32 : 0;
    for (unsigned word = class / 32; word < CLASSES / 32; bits = ++word < CLASSES / 32 ? filled[word] : 0)
        if (bits) return lists[word * 32 + (unsigned)__builtin_ctz(bits)];
    return NULL;
}

static uint32_t wanted_for(size_t size)
{
    if (size > UINT32_MAX / 2) return 0;
    uint32_t wanted = ((uint32_t)size + HEAD + 7) & ~7u;
    return wanted < LEAST ? LEAST : wanted;
}

static void *heap_malloc(size_t size)
{
    uint32_t wanted = wanted_for(size);
    if (!wanted) return NULL;
    block *b = found(wanted);
    if (!b && grow(wanted)) b = found(wanted);
    if (!b) return NULL;
    take_out(b);
    b->length |= IN_USE;
    cut(b, wanted);
    return (char *)b + HEAD;
}

static void heap_free(void *place)
{
    if (!place) return;
    block *b = (block *)((char *)place - HEAD);
    put_in(b, length_of(b));
}

static void *heap_calloc(size_t count, size_t size)
{
    size_t all;
    if (__builtin_mul_overflow(count, size, &all)) return NULL;
    void *place = heap_malloc(all);
    return place ? memset(place, 0, all) : NULL;
}

static size_t heap_usable(const void *place)
{
    return place ? length_of((const block *)((const char *)place - HEAD)) - HEAD : 0;
}

/* In place where what is above is free or is the end of memory. */
static void *heap_realloc(void *place, size_t size)
{
    if (!place) return heap_malloc(size);
    uint32_t wanted = wanted_for(size);
    if (!wanted) return NULL;
    block *b = (block *)((char *)place - HEAD);
    if (length_of(b) < wanted) {
        block *other = above(b);
        int last = other == top || (!(other->length & IN_USE) && above(other) == top);
        uint32_t there = length_of(b) + (other->length & IN_USE ? 0 : other->length);
        if (there < wanted && last && grow(wanted - length_of(b))) other = above(b);
        if (!(other->length & IN_USE) && length_of(b) + other->length >= wanted) {
            take_out(other);
            b->length += other->length;
            above(b)->below = length_of(b);
        } else {
            void *moved = heap_malloc(size);
            if (!moved) return NULL;
            memcpy(moved, place, length_of(b) - HEAD);
            heap_free(place);
            return moved;
        }
    }
    cut(b, wanted);
    return place;
}
