# SPDX-License-Identifier: Apache-2.0
# Language level, compilers that are refused, sanitizers, ccache and linker.
set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
add_compile_options(-fPIC)  # one code model for libraries and programs: they share the precompiled header

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  message(FATAL_ERROR "GCC ${CMAKE_CXX_COMPILER_VERSION} destroys temporaries of coroutines twice and would corrupt memory: "
                      "use clang-19 (the default preset: cmake --preset release) or GCC 13 and newer.")
endif()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")  # asserts stay on: cheap ones are kept in release
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1 -fno-omit-frame-pointer")  # coroutines under sanitizers cost three times as much to compile at -O1
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -Werror=return-type -Werror=unused-result)

set(NACRE_SANITIZE "" CACHE STRING "comma-separated sanitizers, e.g. address,undefined")
option(NACRE_FUZZ "build the fuzz targets with libFuzzer" OFF)
if(NACRE_SANITIZE)
  # Without `alignment`: a stored record lies behind its format byte, and FlatBuffers reads it there (common/schema/codec.h).
  add_compile_options(-fsanitize=${NACRE_SANITIZE} -fno-sanitize=alignment -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${NACRE_SANITIZE})
endif()
if(NACRE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(NACRE_CCACHE ccache)
if(NACRE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # A precompiled header changes its time stamp with every build directory; its content decides.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${NACRE_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endif()

find_program(NACRE_LLD NAMES ld.lld-19 ld.lld)
if(NACRE_LLD)
  add_link_options(-fuse-ld=lld)
endif()
