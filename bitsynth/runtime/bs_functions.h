/* Functions of real numbers in float64: the same bits on every host. Not for callers.
 * They are made of single operations: none of libm's is called. */
#ifndef BS_FUNCTIONS_H
#define BS_FUNCTIONS_H

#include "bs_real.h"

/* Functions, off by less than two units in the last place. */

/* The number that is divided by 2**52 is the exponent's bits. */
static inline double bs_power_of_two(double k)
{
    return bs_double_of_bits((uint64_t)(int64_t)(int32_t)(k + 1023) << 52);
}

/* e**r - 1 for |r| <= ln 2 / 2: its series. */
static inline double bs_expm1_near(double r)
{
    double p = 0x1.6124613a86d09p-33;
    p = p * r + 0x1.1eed8eff8d898p-29;
    p = p * r + 0x1.ae64567f544e4p-26;
    p = p * r + 0x1.27e4fb7789f5cp-22;
    p = p * r + 0x1.71de3a556c734p-19;
    p = p * r + 0x1.a01a01a01a01ap-16;
    p = p * r + 0x1.a01a01a01a01ap-13;
    p = p * r + 0x1.6c16c16c16c17p-10;
    p = p * r + 0x1.1111111111111p-7;
    p = p * r + 0x1.5555555555555p-5;
    p = p * r + 0x1.5555555555555p-3;
    p = p * r + 0.5;
    return p * r * r + r;
}

/* The k with |x - k ln 2| <= ln 2 / 2, and what is left. */
static inline double bs_reduced(double x, double *k)
{
    *k = bs_rint(x * 0x1.71547652b82fep0);
    return (x - *k * 0x1.62e42feep-1) - *k * 0x1.a39ef35793c76p-33;
}

static inline double bs_exp(double x)
{
    double k;
    const double cut = x < -750 ? -750 : x > 710 ? 710 : x;
    const double p = bs_expm1_near(bs_reduced(cut, &k)), half = bs_floor(k * 0.5);
    return cut == cut ? (1 + p) * bs_power_of_two(half) * bs_power_of_two(k - half) : x;
}

/* The greatest number below 1 instead of 1, which no sigmoid is: what rounds down must see that. */
static inline double bs_below_one(double x)
{
    return x == 1 ? 0x1.fffffffffffffp-1 : x;
}

/* Above 0, too: what rounds up must see that. */
static inline double bs_sigmoid(double x)
{
    const double small = bs_exp(-bs_size(x)),
                 made = bs_below_one((x < 0 ? small : 1) / (1 + small));
    return made < 0x1p-1022 ? 0x1p-1022 : made;
}

/* By e**2x - 1, which keeps the digits of small numbers. */
static inline double bs_tanh(double x)
{
    double k;
    const double size = bs_size(x), cut = size > 20 ? 20 : size;
    const double p = bs_expm1_near(bs_reduced(2 * cut, &k)), two = bs_power_of_two(k);
    const double e = two * p + (two - 1), t = bs_below_one(size > 20 ? 1 : e / (e + 2));
    return x == x ? (x < 0 ? -t : t) : x;
}

/* Newton's steps toward 1 over the root, and one toward the root with its exact error; of what is
 * below 0 it is 0, as in the reference. */
static inline double bs_sqrt(double x)
{
    const int small = x < 0x1p-900, large = x > 0x1p900;
    const double a = small ? x * 0x1p200 : large ? x * 0x1p-200 : x;
    double y = bs_double_of_bits(UINT64_C(0x5fe6eb50c7b537a9) - (bs_bits_of_double(a) >> 1));
    for (int i = 0; i < 4; ++i)
        y = y * (1.5 - 0.5 * a * y * y);
    const double root = a * y, square = root * root;
    const double left = (a - square) - bs_product_error(root, root, square);
    const double made = (root + 0.5 * y * left) * (small ? 0x1p-100 : large ? 0x1p100 : 1);
    return x > 0 && x < __builtin_inf() ? made : x < 0 ? 0 : x;
}

/* Of a number above 0: that of its power of two, and of what is left, between the roots of 1/2 and
 * 2, the series of the inverse hyperbolic tangent. */
static inline double bs_log(double x)
{
    const int small = x < 0x1p-1022;
    const uint64_t bits = bs_bits_of_double(small ? x * 0x1p54 : x) - UINT64_C(0x3fe6a09e667f3bcd);
    const double k = (double)((int64_t)bits >> 52) - (small ? 54 : 0);
    const double m =
        bs_double_of_bits((bits & UINT64_C(0xfffffffffffff)) + UINT64_C(0x3fe6a09e667f3bcd));
    const double f = m - 1, s = f / (m + 1), z = s * s;
    double p = 2.0 / 23;
    p = p * z + 2.0 / 21;
    p = p * z + 2.0 / 19;
    p = p * z + 2.0 / 17;
    p = p * z + 2.0 / 15;
    p = p * z + 2.0 / 13;
    p = p * z + 2.0 / 11;
    p = p * z + 2.0 / 9;
    p = p * z + 2.0 / 7;
    p = p * z + 2.0 / 5;
    p = p * z + 2.0 / 3;
    /* 2s is f - s f, the first of which is exact. */
    const double less = s * (f - p * z) - k * 0x1.a39ef35793c76p-33;
    const double made = k * 0x1.62e42feep-1 + (f - less);
    return x > 0 && x < __builtin_inf() ? made
        : x > 0                         ? x
        : x == 0                        ? -__builtin_inf()
                                        : __builtin_nan("");
}

/* Polynomials around 3/4, 5/4 ... 23/4, found at Chebyshev's places: the first has the power 14. */
static const double bs_erf_pieces[11][15] = {
    {0x1.667fa58b0070ap-16,
     -0x1.36b989ccff556p-14,
     -0x1.bd13d8e7a2e3cp-14,
     0x1.4710d00f25d6ep-11,
     0x1.862185356d484p-13,
     -0x1.04103d05ade71p-8,
     0x1.2db333b4ce61bp-9,
     0x1.2e0afad7b4ac3p-6,
     -0x1.b847796701a6dp-6,
     -0x1.b42a189076e8ap-5,
     0x1.349b5eaa14681p-3,
     0x1.b6e8591f65e30p-6,
     -0x1.edc5644353c27p-2,
     0x1.492e42d78d2c5p-1,
     0x1.6c1c9759d0e5fp-1},
    {-0x1.6b00eb2cb6fdap-19,
     0x1.c7dbbabc9602cp-15,
     -0x1.baa412d8caf14p-15,
     -0x1.538c382602086p-12,
     0x1.a0077eba0fde4p-11,
     0x1.cc2172222da51p-11,
     -0x1.75672d12391f6p-8,
     0x1.db43cae5db126p-9,
     0x1.5d0003af90ad9p-6,
     -0x1.8281ce0b82f08p-5,
     -0x1.93a9a7bb7f98dp-8,
     0x1.571d01c5c588cp-3,
     -0x1.2ebf3dcc9f22fp-2,
     0x1.e4652fadcb6b1p-3,
     0x1.d8865d98abe01p-1},
    {-0x1.39018723e6d46p-18,
     -0x1.1c9c05c8566aap-16,
     0x1.200b75b2a369cp-14,
     -0x1.722db27883de3p-18,
     -0x1.d041fa2455146p-12,
     0x1.d4cf7e6170c7fp-11,
     0x1.7ec1d1fe41acfp-11,
     -0x1.8d10fbc9edc40p-8,
     0x1.25b378c922971p-7,
     0x1.b22257de3e309p-8,
     -0x1.8a0da54306125p-5,
     0x1.7148c3d57c13dp-4,
     -0x1.7a4a8a2bdce13p-4,
     0x1.b055303221017p-5,
     0x1.f92d077f8d56dp-1},
    {0x1.c604970ebb8a5p-19,
     -0x1.9a8d6636d4e3dp-20,
     -0x1.7c9628114e880p-16,
     0x1.1145d519c5e72p-14,
     -0x1.80c2a51bfb5f0p-17,
     -0x1.8353090f6d335p-12,
     0x1.0602e34e91dccp-10,
     -0x1.5f8312f2e509fp-11,
     -0x1.7cae0d45d1827p-9,
     0x1.5d3b17bbb7d08p-7,
     -0x1.38a9832789088p-6,
     0x1.63ef61e82460cp-6,
     -0x1.074b60f8df349p-6,
     0x1.d4143a9dfe962p-8,
     0x1.ff404760319b4p-1},
    {-0x1.ddb4fc18278c9p-21,
     0x1.68a5f7de223aap-19,
     -0x1.2027571ce8a4bp-20,
     -0x1.09d044aa888fcp-16,
     0x1.cd5961467fceep-15,
     -0x1.2abb3e006ef2ep-14,
     -0x1.7557732aef7d8p-14,
     0x1.52b6264035d58p-11,
     -0x1.b2755bfd49744p-10,
     0x1.6935960663d09p-9,
     -0x1.ab0c273ac282fp-9,
     0x1.69cf466ccdf7bp-9,
     -0x1.a6a519a114d6ep-10,
     0x1.3360ccd23db3ap-11,
     0x1.fff2cfb0453d9p-1},
    {-0x1.9474cda205f5cp-29,
     -0x1.1dec94d465e98p-21,
     0x1.ff5b0dda40037p-20,
     -0x1.80a322aa6be87p-19,
     -0x1.389435464ebf4p-19,
     0x1.b2c36d6a9697bp-16,
     -0x1.567479968d821p-14,
     0x1.647f71dcc8e45p-13,
     -0x1.145464ea53367p-12,
     0x1.490a4d2379088p-12,
     -0x1.2c7d5ef053abap-12,
     0x1.9aa489e3c996dp-13,
     -0x1.8de3cd290a7c7p-14,
     0x1.e9b5e8d00cebap-16,
     0x1.ffff6f9f67e55p-1},
    {0x1.7133b91983267p-25,
     -0x1.046c53922e7b9p-24,
     -0x1.835991bf3a5d4p-24,
     0x1.a06d7c8613a38p-21,
     -0x1.5d68f52907684p-19,
     0x1.99f58493e3d34p-18,
     -0x1.7566bf05da612p-17,
     0x1.110de505de76bp-16,
     -0x1.4357b55446d3bp-16,
     0x1.3436bc9e6103ep-16,
     -0x1.d06f586094603p-17,
     0x1.0b6a7b0f1f753p-17,
     -0x1.bba3ac4cf8465p-19,
     0x1.d9371e2ff7a72p-21,
     0x1.fffffc2f171e3p-1},
    {-0x1.8d5063f9bbfebp-29,
     0x1.2476c65e7e71cp-26,
     -0x1.e05aa8744cbb7p-25,
     0x1.27def3c157d93p-23,
     -0x1.275887d66f6cap-22,
     0x1.eab4c554bb11fp-22,
     -0x1.566f0257044a5p-21,
     0x1.916e929f2bf29p-21,
     -0x1.8868e1d0a7cbcp-21,
     0x1.3b46801847502p-21,
     -0x1.96ba7366c5762p-22,
     0x1.95ea6fe003e71p-23,
     -0x1.26afa996c31b1p-24,
     0x1.155a09065d31bp-26,
     0x1.fffffff01a8b6p-1},
    {-0x1.c08288e6abc1bp-31,
     0x1.1a4b016ee1dc7p-29,
     -0x1.1ed38869b1ea0p-28,
     0x1.01b220cbcdfeep-27,
     -0x1.90aaa27e76addp-27,
     0x1.0d4e2a0ce34d5p-26,
     -0x1.3834e30c8ba30p-26,
     0x1.35dc7b2ef4aa3p-26,
     -0x1.042f2a6c672b5p-26,
     0x1.6b43c988358b3p-27,
     -0x1.9b017abbcce5cp-28,
     0x1.6a8aeba33b14dp-29,
     -0x1.d453ba308dc61p-31,
     0x1.8a61745ed043cp-33,
     0x1.ffffffffd759dp-1},
    {-0x1.6ba6bda3b5f6dp-35,
     0x1.5baa952604b33p-34,
     -0x1.1168f63ca58b4p-33,
     0x1.933b66aea721ep-33,
     -0x1.07839e41fb1eep-32,
     0x1.2e3dfbd49afdfp-32,
     -0x1.2ec53fc860171p-32,
     0x1.065933e6f4ad0p-32,
     -0x1.83ea4c05d949fp-33,
     0x1.e044b5d9efc14p-34,
     -0x1.e4cb4ae823368p-35,
     0x1.7f8a0f32ad772p-36,
     -0x1.be6dda2acc178p-38,
     0x1.5422ef5dd7e56p-40,
     0x1.ffffffffffc05p-1},
    {-0x1.e0bebdb52146cp-41,
     0x1.80e858e46707ep-40,
     -0x1.f42ee04dbf586p-40,
     0x1.3d8ebeeb6b903p-39,
     -0x1.6a577387fbb15p-39,
     0x1.6d2b03c9f2290p-39,
     -0x1.43c0e76ad620ep-39,
     0x1.f3c4a4fbe308bp-40,
     -0x1.4aed69c0755d9p-40,
     0x1.70b70755e016cp-41,
     -0x1.505d952c32bedp-42,
     0x1.e2d06d25b3af5p-44,
     -0x1.ff8ac58400682p-46,
     0x1.63daf8b6ae5eep-48,
     0x1.ffffffffffffcp-1},
};

/* By a polynomial of the square near 0, and from 6 on by the greatest number below 1, as it is. */
static inline double bs_erf(double x)
{
    static const double first[9] = {
        0x1.8b4b60851826bp-20,
        -0x1.f224dfc5409afp-17,
        0x1.f98db34e8872ep-14,
        -0x1.c02d4f6e4921ap-11,
        0x1.565bcbf8e0365p-8,
        -0x1.b82ce30f2b28fp-6,
        0x1.ce2f21a03d814p-4,
        -0x1.812746b0379b5p-2,
        0x1.20dd750429b6dp+0};
    const double size = bs_size(x), cut = size < 5.999 ? size : 5.999;
    const int32_t piece = (int32_t)(2 * cut), is_near = piece < 1;
    const double *const of = bs_erf_pieces[is_near ? 0 : piece - 1];
    const double t = cut - (piece + 0.5) * 0.5, z = cut * cut;
    double p = first[0], q = of[0];
    for (int i = 1; i < 9; ++i)
        p = p * z + first[i];
    for (int i = 1; i < 15; ++i)
        q = q * t + of[i];
    const double made = is_near ? cut * p : bs_below_one(size < 5.999 && q < 1 ? q : 1);
    return x == x ? (x < 0 ? -made : made) : x;
}

#endif
