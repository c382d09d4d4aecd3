/* The part of gcc's <immintrin.h> that kernels use, in its order: to read the whole takes longer than to compile most
   of them. clang has its own. */
#ifdef __clang__
#include_next <immintrin.h>
#else
#define _IMMINTRIN_H_INCLUDED
#include <x86gprintrin.h>
#include <mmintrin.h>
#include <xmmintrin.h>
#include <emmintrin.h>
#include <pmmintrin.h>
#include <tmmintrin.h>
#include <smmintrin.h>
#include <avxintrin.h>
#ifdef __AVXVNNI__
#include <avxvnniintrin.h>
#endif
#include <avx2intrin.h>
#ifdef __AVX512F__
#include <avx512fintrin.h>
#include <avx512vlintrin.h>
#include <avx512bwintrin.h>
#include <avx512vbmiintrin.h>
#include <avx512vpopcntdqintrin.h>
#include <avx512vnniintrin.h>
#include <avx512bitalgintrin.h>
#endif
#include <fmaintrin.h>
#ifdef __AVX512F__
#include <gfniintrin.h>
#endif
#endif
