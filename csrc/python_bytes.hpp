// Memory of Python objects, as C++ sees it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace octavo {

// The bytes of an object with the buffer protocol, for as long as this lives. Needs the GIL at both ends.
class Bytes {
 public:
  explicit Bytes(const nanobind::object& object, int flags = PyBUF_SIMPLE) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) nanobind::raise_python_error();
  }
  ~Bytes() { PyBuffer_Release(&view_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  uint8_t* data() const { return static_cast<uint8_t*>(view_.buf); }
  int64_t size() const { return view_.len; }

  // Of arrays, which begin where a float may lie.
  float* floats(int64_t count) const {
    require_floats(count);
    return static_cast<float*>(view_.buf);
  }

  // Of parts of files, which may begin at any byte.
  std::vector<float> copied_floats(int64_t count) const {
    require_floats(count);
    std::vector<float> values(static_cast<size_t>(count));
    if (count > 0) std::memcpy(values.data(), view_.buf, static_cast<size_t>(view_.len));
    return values;
  }

 private:
  void require_floats(int64_t count) const {
    if (view_.len != count * static_cast<int64_t>(sizeof(float))) {
      throw std::invalid_argument("expected " + std::to_string(count) + " float32, got " +
                                  std::to_string(view_.len) + " bytes");
    }
  }

  Py_buffer view_;
};

}  // namespace octavo
