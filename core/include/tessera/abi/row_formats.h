/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/row_formats.h - names and byte layouts of stored rows (tsr_kernel_config::row_format).
 *
 *   1. The host opens a kernel for inference with the name of a format and the type of the numbers (weight_dtype).
 *   2. In supports(), the kernel refuses a name that it does not know.
 *   3. The host hands over rows in that format with adopt_rows(), or as float32 with import_rows(). In the second case
 *      the kernel converts them itself.
 *
 * The layouts are the same as in FBGEMM's inference tables. Numbers are little-endian. A row has `dim` values. Rows of
 * a table are tsr_stored_rows::stride bytes apart, which is at least the size of a row; bytes between rows are 0. A
 * format that this file does not name begins with its maker: "acme.mx4".
 *
 * fbgemm.int8, fbgemm.int4, fbgemm.int2: codes with a scale and a bias for each row.
 *     bytes 0 and 1:  scale, an IEEE half
 *     bytes 2 and 3:  bias, an IEEE half
 *     from byte 4 on: the codes, unsigned numbers of 8, 4 or 2 bits; the first value of a byte is in its low bits
 *   Value i is scale * code i + bias, computed exactly and rounded once to float32. weight_dtype is kDLUInt of 8, 4 or
 *   2 bits. A row has 4 + dim * bits / 8 bytes, rounded up to whole bytes.
 *
 * fbgemm.fp8: one byte for each value, 1 sign bit, 4 exponent bits with bias 7, and 3 mantissa bits, from the highest
 *   bit on. With the exponent 0 a value is mantissa / 8 * 2^-6, otherwise (1 + mantissa / 8) * 2^(exponent - 7). There
 *   are no infinities and no NaN, and the exponent 15 is not written: the largest value is 240. weight_dtype is
 *   kDLFloat of 8 bits.
 */
#ifndef TESSERA_ABI_ROW_FORMATS_H_
#define TESSERA_ABI_ROW_FORMATS_H_

#define TSR_ROW_FORMAT_INT8 "fbgemm.int8"
#define TSR_ROW_FORMAT_INT4 "fbgemm.int4"
#define TSR_ROW_FORMAT_INT2 "fbgemm.int2"
#define TSR_ROW_FORMAT_FP8 "fbgemm.fp8"

#endif /* TESSERA_ABI_ROW_FORMATS_H_ */
