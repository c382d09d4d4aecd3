/* Eight tile registers in plain C, after the pseudocode of Intel's manual (volume 2): LDTILECFG, TILERELEASE, TILEZERO,
   TILELOADD, TILESTORED and TDPBUSD of palette 1. What raises an exception there ends the program here. */
/* No header is included: a file may define what these declare before it includes them. */
extern long write(int, const void *, unsigned long);
extern void abort(void) __attribute__((noreturn));

struct tile_state {
    int configured;
    __UINT16_TYPE__ bytes[8];
    __UINT8_TYPE__ rows[8];
    __UINT8_TYPE__ data[8][16][64];
};

static _Thread_local struct tile_state tile_state;

static inline void tile_require(int holds, const char *what)
{
    if (!holds) {
        (void)!write(1, what, __builtin_strlen(what));
        abort();
    }
}

static inline void tile_require_register(int t)
{
    tile_require(tile_state.configured, "matrices are not configured");
    tile_require(t >= 0 && t < 8 && tile_state.rows[t] > 0, "no such matrix register");
}

static inline void emulate_ldtilecfg(const __UINT8_TYPE__ *from)
{
    struct tile_state *s = &tile_state;
    tile_require(from[0] == 1 && from[1] == 0, "palette 1, from the first row");
    for (int k = 2; k < 16; ++k)
        tile_require(from[k] == 0, "reserved bytes are 0");
    __builtin_memset(s, 0, sizeof *s);
    for (int t = 0; t < 16; ++t) {
        const __UINT16_TYPE__ bytes = (__UINT16_TYPE__)(from[16 + 2 * t] | from[17 + 2 * t] << 8);
        const __UINT8_TYPE__ rows = from[48 + t];
        tile_require((bytes == 0) == (rows == 0), "bytes and rows, or none");
        tile_require(t < 8 ? bytes <= 64 && rows <= 16 : bytes == 0, "a tile of at most 16 rows of 64 bytes");
        if (t < 8) {
            s->bytes[t] = bytes;
            s->rows[t] = rows;
        }
    }
    s->configured = 1;
}

static inline void emulate_tilerelease(void)
{
    __builtin_memset(&tile_state, 0, sizeof tile_state);
}

static inline void emulate_tilezero(int t)
{
    tile_require_register(t);
    __builtin_memset(tile_state.data[t], 0, sizeof tile_state.data[t]);
}

static inline void emulate_tileloadd(int t, const void *from, __PTRDIFF_TYPE__ stride)
{
    tile_require_register(t);
    __builtin_memset(tile_state.data[t], 0, sizeof tile_state.data[t]);
    for (int row = 0; row < tile_state.rows[t]; ++row)
        __builtin_memcpy(tile_state.data[t][row], (const __UINT8_TYPE__ *)from + row * stride, tile_state.bytes[t]);
}

static inline void emulate_tilestored(int t, void *to, __PTRDIFF_TYPE__ stride)
{
    tile_require_register(t);
    for (int row = 0; row < tile_state.rows[t]; ++row)
        __builtin_memcpy((__UINT8_TYPE__ *)to + row * stride, tile_state.data[t][row], tile_state.bytes[t]);
}

static inline void emulate_tdpbusd(int to, int a, int b)
{
    struct tile_state *s = &tile_state;
    tile_require_register(to);
    tile_require_register(a);
    tile_require_register(b);
    tile_require(to != a && to != b && a != b, "three different matrix registers");
    tile_require(s->rows[to] == s->rows[a], "as many rows of sums as of the first operand");
    tile_require(s->bytes[to] == s->bytes[b], "as many columns of sums as of the second operand");
    tile_require(s->bytes[a] % 4 == 0 && s->bytes[to] % 4 == 0, "whole numbers of 32 bits");
    tile_require(s->bytes[a] / 4 == s->rows[b], "as many rows of the second operand as columns of the first");
    for (int m = 0; m < s->rows[to]; ++m)
        for (int k = 0; k < s->bytes[a] / 4; ++k)
            for (int n = 0; n < s->bytes[to] / 4; ++n) {
                __UINT32_TYPE__ sum;
                __builtin_memcpy(&sum, &s->data[to][m][4 * n], 4);
                for (int j = 0; j < 4; ++j)
                    sum += (__UINT32_TYPE__)((int)s->data[a][m][4 * k + j] * (int)(__INT8_TYPE__)s->data[b][k][4 * n + j]);
                __builtin_memcpy(&s->data[to][m][4 * n], &sum, 4);
            }
}
