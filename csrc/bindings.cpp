// The Python module octavo._native. Only this file and those that it names (program_bindings.cpp,
// convert_bindings.cpp, text_bindings.cpp) see Python.
//
// Converts and checks what comes from Python; everything that takes time runs without the GIL. The
// signatures are in src/octavo/_native.pyi. std::invalid_argument becomes ValueError,
// std::runtime_error RuntimeError.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "convert_bindings.hpp"
#include "dispatch.hpp"
#include "forward.hpp"
#include "hand_batch.hpp"
#include "host_pool.hpp"
#include "kv_pool.hpp"
#include "packing.hpp"
#include "program_bindings.hpp"
#include "python_bytes.hpp"
#include "python_processing.hpp"
#include "session.hpp"
#include "text_bindings.hpp"
#include "threads.hpp"
#include "weights.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace octavo {
namespace {

using Ints = std::vector<int32_t>;
// Matrix, source, type, data, interleaved heads, first row.
using PythonPiece = std::tuple<int32_t, int32_t, int32_t, nb::object, int32_t, int64_t>;

std::vector<float> copy_floats(const nb::object& buffer) {
  const Bytes bytes(buffer);
  return bytes.copied_floats(bytes.size() / static_cast<int64_t>(sizeof(float)));
}

WeightType weight_type(int32_t value) {
  const WeightType type = static_cast<WeightType>(value);
  if (panel_layout(type).block == 0) {
    throw std::invalid_argument("no weight type " + std::to_string(value));
  }
  return type;
}

KvType kv_type(int32_t value) {
  const KvType type = static_cast<KvType>(value);
  if (kv_row_bytes(type, 2) == 0) {
    throw std::invalid_argument("no KV type " + std::to_string(value));
  }
  return type;
}

nb::tuple to_python(const TokenLogprobs& entry) {
  return nb::make_tuple(entry.token_ids, entry.logprobs, entry.rank);
}

nb::list to_python(const std::vector<RowLogprobs>& entries) {
  nb::list list;
  for (const RowLogprobs& entry : entries) {
    list.append(nb::make_tuple(entry.row, to_python(entry.entry)));
  }
  return list;
}

// A mask of a plan: bytes, or what has a `source` (contracts/grammar.py).
TokenMask token_mask(const nb::object& given) {
  TokenMask mask;
  nb::bytes bytes;
  if (nb::try_cast(given, bytes)) {
    mask.bits = static_cast<const uint8_t*>(bytes.data());
    mask.num_bytes = static_cast<int64_t>(bytes.size());
    return mask;
  }
  mask.source = reinterpret_cast<MaskSource*>(nb::cast<uintptr_t>(given.attr("source")));
  mask.num_bytes = static_cast<int64_t>(mask.source->num_bytes);
  return mask;
}

nb::tuple to_python(const StepOutput& output) {
  nb::list errors;
  for (const RowError& error : output.errors) {
    errors.append(nb::make_tuple(error.row, error.what));
  }
  nb::list pooled;
  for (const RowVectors& entry : output.pooled) {
    pooled.append(nb::make_tuple(
        entry.row, nb::bytes(entry.values.data(), entry.values.size() * sizeof(float))));
  }
  return nb::make_tuple(output.sampled, output.accepted, to_python(output.logprobs),
                        to_python(output.prompt_logprobs), pooled, errors, output.seconds,
                        output.swap_seconds, output.sample_seconds);
}

// ---- Eager runs: a batch by hand, without a session ------------------------------------------------

void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

void run_batch(Forward& forward, Ints token_ids, Ints positions, std::vector<HandRow> rows, Ints wanted,
               Ints segments, Ints wanted_first) {
  run_by_hand(forward, {std::move(token_ids), std::move(positions), std::move(rows), std::move(wanted),
                        std::move(segments), std::move(wanted_first)});
}

void write_rows(Forward& forward, const View& view, Rows rows, const nb::object& values) {
  forward.program().check_view(view, rows);
  const Bytes bytes(values);
  const int64_t row_bytes = view.width * static_cast<int64_t>(sizeof(float));
  const int64_t count = bytes.size() / row_bytes;
  require(bytes.size() % row_bytes == 0 && count <= forward.program().capacity(rows),
          "the values are not whole rows, or too many");
  for (int64_t row = 0; row < count; ++row) {
    std::memcpy(forward.arena() + view.offset + row * view.stride, bytes.data() + row * row_bytes,
                static_cast<size_t>(row_bytes));
  }
}

nb::bytes read_rows(Forward& forward, const View& view, Rows rows, int64_t count) {
  forward.program().check_view(view, rows);
  require(count >= 0 && count <= forward.program().capacity(rows), "too many rows");
  std::vector<float> values(static_cast<size_t>(count * view.width));
  for (int64_t row = 0; row < count; ++row) {
    std::memcpy(values.data() + row * view.width, forward.arena() + view.offset + row * view.stride,
                static_cast<size_t>(view.width) * sizeof(float));
  }
  return nb::bytes(values.data(), values.size() * sizeof(float));
}

// ---- The module, class by class --------------------------------------------------------------------

void bind_machine(nb::module_& module) {
  nb::class_<KernelTable>(module, "Kernels").def_prop_ro("name", [](const KernelTable& table) {
    return std::string(table.name);
  });
  module.def("available_isas", &available_isas);
  module.def("find_kernels", &find_kernels, "isa"_a, nb::rv_policy::reference);

  nb::class_<ThreadPool>(module, "ThreadPool")
      .def(nb::init<int, bool>(), "num_threads"_a, "pin"_a)
      .def_prop_ro("num_threads", &ThreadPool::num_threads);
}

void bind_weights(nb::module_& module) {
  nb::class_<Weights>(module, "Weights")
      .def(nb::init<>())
      .def(
          "add_matrix",
          [](Weights& weights, int64_t cols, const std::vector<std::pair<int32_t, int64_t>>& from) {
            std::vector<std::pair<WeightType, int64_t>> sources;
            for (const auto& [type, rows] : from) sources.emplace_back(weight_type(type), rows);
            return weights.add_matrix(cols, sources);
          },
          "cols"_a, "sources"_a)
      .def("allocate", &Weights::allocate)
      .def(
          "fill",
          [](Weights& weights, ThreadPool& threads, int32_t matrix, int32_t source, int32_t type,
             const nb::object& data, int32_t interleaved_heads, int64_t first_row) {
            const Bytes bytes(data);
            const nb::gil_scoped_release release;
            const Packed packed = weights.fill(
                threads, {{matrix, source, weight_type(type), bytes.data(), bytes.size(),
                           interleaved_heads, first_row}});
            if (packed.count == 0) throw std::invalid_argument(packed.why);
          },
          "threads"_a, "matrix"_a, "source"_a, "type"_a, "data"_a, "interleaved_heads"_a = 0,
          "first_row"_a = 0)
      .def(
          "fill_all",
          [](Weights& weights, ThreadPool& threads, const std::vector<PythonPiece>& from) {
            std::deque<Bytes> held;
            std::vector<Piece> pieces;
            for (const auto& [matrix, source, type, data, interleaved_heads, first_row] : from) {
              const Bytes& bytes = held.emplace_back(data);
              pieces.push_back({matrix, source, weight_type(type), bytes.data(), bytes.size(),
                                interleaved_heads, first_row});
            }
            Packed packed;
            {
              const nb::gil_scoped_release release;
              packed = weights.fill(threads, pieces);
            }
            return std::make_pair(packed.count, packed.why);
          },
          "threads"_a, "pieces"_a)
      .def(
          "set_bias",
          [](Weights& weights, int32_t matrix, const nb::object& values) {
            weights.set_bias(matrix, copy_floats(values));
          },
          "matrix"_a, "values"_a)
      .def(
          "add_vector",
          [](Weights& weights, const nb::object& values) {
            return weights.add_vector(copy_floats(values));
          },
          "values"_a)
      .def("add_order", &Weights::add_order, "columns"_a)
      .def_prop_ro("num_bytes", &Weights::num_bytes);
}

// The bytes of all slots, as a buffer that keeps the pool alive.
int host_pool_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  const HostPool& pool = *nb::inst_ptr<HostPool>(self);
  const int64_t bytes = pool.slot(pool.num_slots()) - pool.slot(0);
  return PyBuffer_FillInfo(view, self, pool.slot(0), bytes, 0, flags);
}

PyType_Slot host_pool_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(host_pool_buffer)},
    {0, nullptr},
};

void bind_kv_pool(nb::module_& module) {
  using Layers = std::vector<std::pair<int64_t, int64_t>>;
  const auto shapes = [](const Layers& layers) {
    std::vector<KvShape> result;
    for (const auto& [heads, head_dim] : layers) result.push_back({heads, head_dim});
    return result;
  };
  nb::class_<KvPool>(module, "KvPool")
      .def(
          "__init__",
          [shapes](KvPool* self, int32_t type, int64_t num_blocks, int64_t block_size,
                   const Layers& layers, const KvGroups& groups) {
            new (self) KvPool(kv_type(type), num_blocks, block_size, shapes(layers), groups);
          },
          "type"_a, "num_blocks"_a, "block_size"_a, "layers"_a, "groups"_a = KvGroups())
      .def_prop_ro("num_blocks", &KvPool::num_blocks)
      .def_prop_ro("block_size", &KvPool::block_size)
      .def_static(
          "bytes_per_block",
          [shapes](int32_t type, int64_t block_size, const Layers& layers,
                   const KvGroups& groups) {
            return KvPool::bytes_per_block(kv_type(type), block_size, shapes(layers), groups);
          },
          "type"_a, "block_size"_a, "layers"_a, "groups"_a = KvGroups());
  nb::class_<HostPool>(module, "HostPool", nb::type_slots(host_pool_slots))
      .def(nb::init<int64_t, int64_t, const std::string&>(), "num_slots"_a, "slot_bytes"_a,
           "folder"_a)
      .def_prop_ro("num_slots", &HostPool::num_slots)
      .def(
          "slot",
          [](nb::handle_t<HostPool> self, int64_t index) {
            const HostPool& pool = nb::cast<const HostPool&>(self);
            require(index >= 0 && index < pool.num_slots(), "there is no such host slot");
            const nb::object all = nb::steal(PyMemoryView_FromObject(self.ptr()));
            const int64_t begin = pool.slot(index) - pool.slot(0);
            return nb::object(all[nb::slice(begin, begin + pool.slot_bytes())]);
          },
          "index"_a, nb::sig("def slot(self, index: int) -> memoryview"));
}

void bind_forward(nb::module_& module) {
  nb::class_<Forward>(module, "Forward")
      .def(
          "__init__",
          [](Forward* self, std::shared_ptr<const Program> program, const KernelTable& kernels,
             std::shared_ptr<ThreadPool> threads, std::shared_ptr<const KvPool> kv,
             int64_t max_rows, int64_t max_len) {
            new (self) Forward(std::move(program), kernels, std::move(threads), std::move(kv),
                               {max_rows, max_len});
          },
          "program"_a, "kernels"_a, "threads"_a, "kv"_a, "max_rows"_a, "max_len"_a)
      .def_static(
          "workspace_bytes",
          [](const Program& program, const KernelTable& kernels, int num_threads, int64_t max_rows,
             int64_t max_len) {
            return Forward::workspace_bytes(program, kernels, num_threads, {max_rows, max_len});
          },
          "program"_a, "kernels"_a, "num_threads"_a, "max_rows"_a, "max_len"_a)
      .def("run", &run_batch, "token_ids"_a, "positions"_a, "rows"_a, "wanted"_a,
           "segments"_a = Ints(), "wanted_first"_a = Ints(),
           nb::call_guard<nb::gil_scoped_release>())
      .def("write", &write_rows, "view"_a, "rows"_a, "values"_a)
      .def("read", &read_rows, "view"_a, "rows"_a, "count"_a);
}

void bind_sampler(nb::module_& module) {
  nb::class_<SamplingSpec>(module, "SamplingSpec")
      .def(nb::init<>())
      .def_rw("temperature", &SamplingSpec::temperature)
      .def_rw("top_k", &SamplingSpec::top_k)
      .def_rw("top_p", &SamplingSpec::top_p)
      .def_rw("min_p", &SamplingSpec::min_p)
      .def_rw("seed", &SamplingSpec::seed)
      .def_rw("repetition_penalty", &SamplingSpec::repetition_penalty)
      .def_rw("presence_penalty", &SamplingSpec::presence_penalty)
      .def_rw("frequency_penalty", &SamplingSpec::frequency_penalty)
      .def_rw("bias_token_ids", &SamplingSpec::bias_token_ids)
      .def_rw("bias_values", &SamplingSpec::bias_values)
      .def_rw("allowed_token_ids", &SamplingSpec::allowed_token_ids)
      .def_rw("bad_words", &SamplingSpec::bad_words)
      .def_rw("min_tokens", &SamplingSpec::min_tokens)
      .def_rw("stop_token_ids", &SamplingSpec::stop_token_ids)
      .def_rw("num_logprobs", &SamplingSpec::num_logprobs)
      .def_rw("num_prompt_logprobs", &SamplingSpec::num_prompt_logprobs)
      .def_rw("logprob_token_ids", &SamplingSpec::logprob_token_ids);
}

// For runners that compute logits elsewhere.
void bind_row_sampler(nb::module_& module) {
  struct SizedSampler {
    int64_t vocab_size;
    RowSampler sampler;
  };
  nb::class_<SizedSampler>(module, "RowSampler")
      .def(
          "__init__",
          [](SizedSampler* self, SamplingSpec spec, const Ints& token_ids, int32_t num_prompt,
             int64_t vocab_size) {
            new (self) SizedSampler{
                vocab_size, RowSampler(std::move(spec), token_ids, num_prompt, vocab_size)};
          },
          "spec"_a, "token_ids"_a, "num_prompt"_a, "vocab_size"_a)
      .def(
          "sample",
          [](SizedSampler& self, const KernelTable& kernels, const nb::object& logits,
             const Ints& token_ids, const std::optional<nb::bytes>& mask, int32_t row,
             int32_t stages, const nb::object& scratch,
             const nb::object& process) -> std::pair<int32_t, std::optional<nb::tuple>> {
            const Bytes bytes(logits, PyBUF_WRITABLE);
            require(!mask || static_cast<int64_t>(mask->size()) * 8 >= self.vocab_size,
                    "the mask is shorter than the vocabulary");
            std::optional<Bytes> shared;
            Processing processing{stages, nullptr};
            if (stages != 0) {
              shared.emplace(scratch, PyBUF_WRITABLE);
              processing.run = [row, run = run_in_python(process, *shared, self.vocab_size)](
                                   Stage stage, float* values) { run(row, stage, values); };
            }
            TokenLogprobs entry;
            AllowedBits allowed(mask ? static_cast<const uint8_t*>(mask->data()) : nullptr);
            const int32_t token = self.sampler.sample(
                kernels, bytes.floats(self.vocab_size), token_ids, &entry, mask ? &allowed : nullptr,
                stages != 0 ? &processing : nullptr);
            if (self.sampler.spec().num_logprobs < 0) return {token, std::nullopt};
            return {token, to_python(entry)};
          },
          "kernels"_a, "logits"_a, "token_ids"_a, "mask"_a = nb::none(), "row"_a = -1,
          "stages"_a = 0, "scratch"_a = nb::none(), "process"_a = nb::none())
      .def("append",
           [](SizedSampler& self, int32_t token_id) { self.sampler.append(token_id); },
           "token_id"_a)
      .def("replace",
           [](SizedSampler& self, int32_t token_id, int32_t other_id) {
             self.sampler.replace(token_id, other_id);
           },
           "token_id"_a, "other_id"_a);
  module.def(
      "top_logprobs",
      [](const KernelTable& kernels, const nb::object& logits, int32_t token_id, int32_t count) {
        const Bytes bytes(logits);
        const int64_t size = bytes.size() / static_cast<int64_t>(sizeof(float));
        require(token_id >= 0 && token_id < size, "the token is outside the logits");
        return to_python(top_logprobs(kernels, bytes.floats(size), size, token_id, count));
      },
      "kernels"_a, "logits"_a, "token_id"_a, "count"_a);
}

void bind_new_row(nb::module_& module) {
  nb::enum_<Pooling>(module, "Pooling")
      .value("NONE", Pooling::None)
      .value("FIRST", Pooling::First)
      .value("LAST", Pooling::Last)
      .value("MEAN", Pooling::Mean)
      .value("ALL", Pooling::All);
  nb::class_<NewRow>(module, "NewRow")
      .def(
          "__init__",
          [](NewRow* self, int32_t row, Ints token_ids, int32_t num_prompt_tokens,
             int32_t num_computed_tokens, std::vector<Ints> block_ids, SamplingSpec sampling,
             int32_t twin_row, Pooling pooling, int32_t second_segment) {
            new (self) NewRow{row, std::move(token_ids), num_prompt_tokens, num_computed_tokens,
                              std::move(block_ids), std::move(sampling), twin_row,
                              pooling, second_segment};
          },
          "row"_a, "token_ids"_a, "num_prompt_tokens"_a, "num_computed_tokens"_a, "block_ids"_a,
          "sampling"_a, "twin_row"_a, "pooling"_a = Pooling::None, "second_segment"_a = -1);
}

void bind_session(nb::module_& module) {
  nb::class_<Session>(module, "Session")
      .def(nb::init<std::shared_ptr<Forward>, std::shared_ptr<HostPool>, int64_t, int64_t, bool>(),
           "forward"_a, "host"_a.none(), "max_rows"_a, "max_len"_a, "has_idle_core"_a)
      .def(
          "step",
          [](Session& session, Ints freed_rows, std::vector<NewRow> new_rows, Ints table_rows,
             Ints table_groups, Ints table_places, Ints table_block_ids, Ints replaced_rows,
             Ints replaced_token_ids, Ints swap_out_from, Ints swap_out_to, Ints swap_in_from,
             Ints swap_in_to, Ints copy_from, Ints copy_to, Ints rows, Ints num_tokens,
             std::vector<bool> samples, Ints mask_rows, const std::vector<nb::object>& given,
             Ints draft_rows, std::vector<Ints> draft_token_ids, Ints processed_rows,
             Ints processed_stages, const nb::object& scratch, const nb::object& process) {
            std::vector<TokenMask> masks;
            for (const nb::object& mask : given) masks.push_back(token_mask(mask));
            std::optional<Bytes> shared;
            std::function<void(int32_t, Stage, float*)> run;
            if (!processed_rows.empty()) {
              shared.emplace(scratch, PyBUF_WRITABLE);
              run = run_in_python(process, *shared, session.vocab_size());
            }
            StepOutput output;
            {
              const nb::gil_scoped_release release;
              output = session.step({std::move(freed_rows), std::move(new_rows),
                                     std::move(table_rows), std::move(table_groups),
                                     std::move(table_places), std::move(table_block_ids),
                                     std::move(replaced_rows), std::move(replaced_token_ids),
                                     std::move(swap_out_from), std::move(swap_out_to),
                                     std::move(swap_in_from), std::move(swap_in_to),
                                     std::move(copy_from), std::move(copy_to), std::move(rows),
                                     std::move(num_tokens), std::move(samples),
                                     std::move(mask_rows), std::move(masks),
                                     std::move(draft_rows), std::move(draft_token_ids),
                                     std::move(processed_rows), std::move(processed_stages),
                                     std::move(run)});
            }
            return to_python(output);
          },
          "freed_rows"_a, "new_rows"_a, "table_rows"_a, "table_groups"_a, "table_places"_a,
          "table_block_ids"_a, "replaced_rows"_a, "replaced_token_ids"_a, "swap_out_from"_a,
          "swap_out_to"_a, "swap_in_from"_a, "swap_in_to"_a, "copy_from"_a, "copy_to"_a, "rows"_a,
          "num_tokens"_a, "samples"_a, "mask_rows"_a, "masks"_a, "draft_rows"_a,
          "draft_token_ids"_a, "processed_rows"_a, "processed_stages"_a, "scratch"_a.none(),
          "process"_a.none());
}

}  // namespace
}  // namespace octavo

NB_MODULE(_native, module) {
  // A thread that still holds an engine when the interpreter ends is no fault worth a report.
  nb::set_leak_warnings(false);
  octavo::bind_machine(module);
  octavo::bind_weights(module);
  octavo::bind_kv_pool(module);
  octavo::bind_program(module);
  octavo::bind_forward(module);
  octavo::bind_sampler(module);
  octavo::bind_row_sampler(module);
  octavo::bind_new_row(module);
  octavo::bind_session(module);
  octavo::bind_text(module);
  octavo::bind_conversions(module);
}
