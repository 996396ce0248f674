// A C++ program that uses the operator, without Python: once through the dispatcher, once in a model that
// AOTInductor has compiled. Arguments: libops_mojo.so, model.pt2.

#include <dlfcn.h>

#include <cstdio>

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

static bool check(const char* what, const at::Tensor& got, const at::Tensor& want) {
  bool same = at::allclose(got, want, 1e-5, 1e-6);
  std::printf("%s: %s\n", what, same ? "right" : "WRONG");
  return same;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s libops_mojo.so model.pt2\n", argv[0]);
    return 2;
  }
  if (dlopen(argv[1], RTLD_NOW) == nullptr) {  // registers the operator
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  c10::InferenceMode inference;
  at::Tensor x = at::randn({3, 5}), y = at::randn({3, 5});
  auto scale_add = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("ship_an_op::scale_add", "")
                       .typed<at::Tensor(const at::Tensor&, const at::Tensor&, double)>();
  bool right = check("operator", scale_add.call(x, y, 2.5), x + 2.5 * y);
  right &= check("strided", scale_add.call(x.t(), y.t(), 1.0), x.t() + y.t());
  try {
    scale_add.call(x.to(at::kDouble), y.to(at::kDouble), 1.0);
  } catch (const c10::Error& e) {
    std::printf("%s\n", e.what_without_backtrace());
  }
  torch::inductor::AOTIModelPackageLoader model(argv[2]);
  at::Tensor a = at::randn({7, 5}), b = at::randn({7, 5});
  right &= check("model", model.run({a, b})[0], at::relu(at::sin(a) + 2.0 * b));
  return right ? 0 : 1;
}
