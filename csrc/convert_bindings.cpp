#include "convert_bindings.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <numeric>
#include <optional>
#include <vector>

#include "convert.hpp"
#include "dispatch.hpp"
#include "memory.hpp"
#include "packing.hpp"
#include "python_bytes.hpp"
#include "quantise.hpp"
#include "repack.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Shape = std::tuple<int64_t, int64_t>;

nb::bytes to_bytes(const std::vector<uint8_t>& data) { return nb::bytes(data.data(), data.size()); }

WeightType type_of(int32_t value) {
  const WeightType type = static_cast<WeightType>(value);
  if (panel_layout(type).block == 0) throw std::invalid_argument("no weight type " + std::to_string(value));
  return type;
}

// Tables with the bytes that they point into.
struct OwnedInts {
  OwnedInts(const nb::object& data, int bits, int word_bits, Shape shape, Shape strides, bool packs_rows,
            int order, bool is_signed)
      : bytes(data),
        ints{bytes.data(), bytes.size(), bits, word_bits, std::get<0>(shape), std::get<1>(shape),
             std::get<0>(strides), std::get<1>(strides), packs_rows, static_cast<WordOrder>(order), is_signed},
        memory(nb::steal(PyMemoryView_FromObject(data.ptr()))) {
    ints.check();
  }
  nb::tuple layout() const {
    return nb::make_tuple(ints.bits, ints.word_bits, ints.rows, ints.cols, ints.row_stride, ints.col_stride,
                          ints.packs_rows, static_cast<int>(ints.order), ints.is_signed);
  }
  Bytes bytes;
  PackedInts ints;
  nb::object memory;  // the same bytes, for Python
};

struct OwnedScales {
  OwnedScales(const nb::object& data, int type, Shape shape, Shape strides, Shape shared, float factor)
      : bytes(data),
        scales{bytes.data(), bytes.size(), static_cast<ScaleType>(type), std::get<0>(shape), std::get<1>(shape),
               std::get<0>(strides), std::get<1>(strides), std::get<0>(shared), std::get<1>(shared), factor},
        memory(nb::steal(PyMemoryView_FromObject(data.ptr()))) {
    scales.check();
  }
  nb::tuple layout() const {
    return nb::make_tuple(static_cast<int>(scales.type), scales.rows, scales.groups, scales.row_stride,
                          scales.group_stride, scales.rows_each, scales.cols_each, scales.factor);
  }
  Bytes bytes;
  Scales scales;
  nb::object memory;
};

const int32_t* indices(const std::vector<int32_t>& values, int64_t count) {
  if (values.empty()) return nullptr;
  if (static_cast<int64_t>(values.size()) != count) throw std::invalid_argument("an index for each column is needed");
  return values.data();
}

nb::bytes convert(int32_t to, const OwnedInts& codes, const OwnedScales& scales, const OwnedInts* zeros,
                  int32_t zero_point, const std::vector<int32_t>& columns, const std::vector<int32_t>& groups,
                  Shape rows) {
  ConvertArgs args{};
  args.to = type_of(to);
  args.rows = codes.ints.rows;
  args.cols = codes.ints.cols;
  args.codes = &codes.ints;
  args.scales = &scales.scales;
  args.zeros = zeros ? &zeros->ints : nullptr;
  args.zero_point = zero_point;
  args.columns = indices(columns, args.cols);
  args.groups = indices(groups, args.cols);
  args.row_begin = std::get<0>(rows);
  args.row_end = std::get<1>(rows);
  std::vector<uint8_t> result;
  {
    const nb::gil_scoped_release release;
    result = convert_rows(args);
  }
  return to_bytes(result);
}

nb::bytes quantise(int32_t from, const nb::object& data, int64_t cols, int32_t to) {
  const Bytes bytes(data);
  const WeightType type = type_of(from);
  if (cols < 1 || is_quantised(type)) throw std::invalid_argument("only float rows are quantised");
  const int64_t row_bytes = file_row_bytes(type, cols);
  if (bytes.size() % row_bytes != 0) throw std::invalid_argument("the data are no whole rows");
  std::vector<uint8_t> result;
  {
    const nb::gil_scoped_release release;
    result = quantise_rows(type, bytes.data(), bytes.size() / row_bytes, cols, type_of(to));
  }
  return to_bytes(result);
}

// Packed for a moment, and looked up: the one place that knows what the types mean is the kernels.
nb::bytes float_rows(int32_t type, const nb::object& rows, int64_t cols) {
  const Bytes bytes(rows);
  const WeightType from = type_of(type);
  if (cols < 1 || cols % block_elements(from) != 0) throw std::invalid_argument("the columns are no whole blocks");
  const int64_t row_bytes = file_row_bytes(from, cols);
  if (bytes.size() % row_bytes != 0) throw std::invalid_argument("the data are no whole rows");
  const int64_t num_rows = bytes.size() / row_bytes, num_panels = (num_rows + kPanelRows - 1) / kPanelRows;
  std::vector<float> values(static_cast<size_t>(num_rows * cols));
  bool is_finite = true;
  {
    const nb::gil_scoped_release release;
    const Memory panels(num_panels * panel_bytes(from, cols));
    is_finite = pack_panels({bytes.data(), from, from, num_rows, cols, nullptr, panels.data(), 0, num_panels});
    std::vector<int32_t> ids(static_cast<size_t>(num_rows));
    std::iota(ids.begin(), ids.end(), 0);
    find_kernels("").embed({from, panels.data(), panel_bytes(from, cols), num_rows, cols, ids.data(), 1.0f,
                            values.data(), cols, 0, num_rows});
  }
  if (!is_finite) throw std::domain_error("it holds a number that is not finite");
  return nb::bytes(values.data(), values.size() * sizeof(float));
}

// Rows to be rounded, with the bytes that they point into.
struct OwnedRounding {
  OwnedRounding(int32_t type, const nb::object& data, int64_t cols, int bits, int64_t group,
                const nb::object& rows, const nb::object& columns)
      : bytes(data), args{type_of(type), bytes.data(), 0, cols, bits, group, nullptr, nullptr} {
    if (cols < 1 || is_quantised(args.from)) throw std::invalid_argument("only float rows are quantised");
    const int64_t row_bytes = file_row_bytes(args.from, cols);
    if (bytes.size() % row_bytes != 0) throw std::invalid_argument("the data are no whole rows");
    args.rows = bytes.size() / row_bytes;
    args.row_factors = factors(rows, args.rows, row_values);
    args.column_factors = factors(columns, cols, column_values);
  }
  static const float* factors(const nb::object& given, int64_t count, std::vector<float>& values) {
    const Bytes owned(given);
    if (owned.size() == 0) return nullptr;
    values = owned.copied_floats(count);
    return values.data();
  }
  Bytes bytes;
  std::vector<float> row_values, column_values;
  RowRounding args;
};

nb::tuple tables_of(int32_t type, const nb::object& data, int64_t cols, int bits, int64_t group,
                    const nb::object& rows, const nb::object& columns) {
  const OwnedRounding owned(type, data, cols, bits, group, rows, columns);
  IntTables tables;
  {
    const nb::gil_scoped_release release;
    tables = rounded_tables(owned.args);
  }
  return nb::make_tuple(to_bytes(tables.words), to_bytes(tables.scales), to_bytes(tables.zeros));
}

double error_of(int32_t type, const nb::object& data, int64_t cols, int bits, int64_t group,
                const nb::object& columns, const nb::object& weights, int64_t step) {
  const OwnedRounding owned(type, data, cols, bits, group, nb::bytes("", 0), columns);
  const std::vector<float> values = Bytes(weights).copied_floats(cols);
  const nb::gil_scoped_release release;
  return rounding_error(owned.args, values.data(), step);
}

nb::tuple column_sums(const nb::object& data, int64_t cols) {
  const Bytes bytes(data);
  const int64_t row_bytes = cols * static_cast<int64_t>(sizeof(float));
  if (cols < 1 || bytes.size() % row_bytes != 0) throw std::invalid_argument("the data are no whole rows");
  const int64_t rows = bytes.size() / row_bytes;
  std::vector<double> magnitudes(static_cast<size_t>(cols)), squares(static_cast<size_t>(cols));
  add_columns(bytes.floats(rows * cols), rows, cols, magnitudes.data(), squares.data());
  return nb::make_tuple(magnitudes, squares);
}

nb::bytes nested(const nb::object& codes, const nb::object& map, const nb::object& scales, int64_t block,
                 float offset) {
  const Bytes code_bytes(codes), map_bytes(map), scale_bytes(scales);
  const int64_t count = code_bytes.size();
  if (block < 1) throw std::invalid_argument("a block needs at least one scale");
  const std::vector<float> table = map_bytes.copied_floats(256);
  const std::vector<float> outer = scale_bytes.copied_floats((count + block - 1) / block);
  const std::vector<float> result =
      nested_scales(code_bytes.data(), count, table.data(), outer.data(), block, offset);
  return nb::bytes(result.data(), result.size() * sizeof(float));
}

}  // namespace

void bind_conversions(nb::module_& module) {
  nb::class_<OwnedInts>(module, "PackedInts")
      .def(nb::init<const nb::object&, int, int, Shape, Shape, bool, int, bool>(), "data"_a, "bits"_a,
           "word_bits"_a, "shape"_a, "strides"_a, "packs_rows"_a = false, "order"_a = 0, "is_signed"_a = false)
      .def_ro("data", &OwnedInts::memory)
      .def_prop_ro("layout", &OwnedInts::layout);
  nb::class_<OwnedScales>(module, "Scales")
      .def(nb::init<const nb::object&, int, Shape, Shape, Shape, float>(), "data"_a, "type"_a, "shape"_a,
           "strides"_a, "shared"_a, "factor"_a = 1.0f)
      .def_ro("data", &OwnedScales::memory)
      .def_prop_ro("layout", &OwnedScales::layout);
  module.def("convert_rows", &convert, "to"_a, "codes"_a, "scales"_a, "zeros"_a.none(), "zero_point"_a,
             "columns"_a, "groups"_a, "rows"_a);
  module.def("quantise_rows", &quantise, "type"_a, "data"_a, "cols"_a, "to"_a);
  module.def("int_tables", &tables_of, "type"_a, "data"_a, "cols"_a, "bits"_a, "group"_a,
             "row_factors"_a = nb::bytes("", 0), "column_factors"_a = nb::bytes("", 0));
  module.def("rounding_error", &error_of, "type"_a, "data"_a, "cols"_a, "bits"_a, "group"_a, "column_factors"_a,
             "weights"_a, "step"_a = 1);
  module.def("column_sums", &column_sums, "data"_a, "cols"_a);
  module.def(
      "repack_blocks",
      [](int32_t type, const nb::object& data, float factor) {
        const Bytes bytes(data);
        std::vector<uint8_t> result;
        {
          const nb::gil_scoped_release release;
          result = repack_blocks(type, bytes.data(), bytes.size(), factor);
        }
        return to_bytes(result);
      },
      "ggml_type"_a, "data"_a, "factor"_a = 1.0f);
  module.def("float_rows", &float_rows, "type"_a, "data"_a, "cols"_a);
  module.def("nested_scales", &nested, "codes"_a, "map"_a, "scales"_a, "block"_a, "offset"_a);
}

}  // namespace octavo
