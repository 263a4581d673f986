# SPDX-License-Identifier: Apache-2.0
# The few shapes that targets come in. Every source includes headers by their path from the repository root.
add_library(nacre_flags INTERFACE)
target_include_directories(nacre_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_compile_definitions(nacre_flags INTERFACE BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_DISABLE_BOOST_COROUTINE SPDLOG_FMT_EXTERNAL NACRE_VERSION="${PROJECT_VERSION}")
target_link_libraries(nacre_flags INTERFACE Boost::headers flatbuffers::flatbuffers fmt::fmt Threads::Threads)

# nacre_library(NAME [SOURCES ...] [LINK ...]): a static library that shares the precompiled header.
function(nacre_library name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_link_libraries(${name} PUBLIC nacre_flags ${A_LINK})
  if(NOT name STREQUAL nacre_pch)
    target_precompile_headers(${name} REUSE_FROM nacre_pch)
  endif()
endfunction()

# nacre_program(NAME [SOURCES ...] [LINK ...]): an executable in <build>/bin.
function(nacre_program name)
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE nacre_flags ${A_LINK})
  target_precompile_headers(${name} REUSE_FROM nacre_pch)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()

# What runs under sanitizers: unit tests and fuzzers. The release build leaves them out of `all`; name one to build it.
add_custom_target(sanitized)

# nacre_test(NAME [SOURCES ...] [LINK ...]): a GoogleTest program, registered with CTest under its name.
function(nacre_test name)
  if(NOT TARGET GTest::gtest_main)
    return()
  endif()
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE nacre_flags ${A_LINK} GTest::gtest_main GTest::gmock)
  target_precompile_headers(${name} REUSE_FROM nacre_pch)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test)
  add_dependencies(sanitized ${name})
  if(NOT NACRE_SANITIZE)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS unit)
endfunction()

# nacre_fuzzer(NAME [SOURCES ...] [LINK ...]): a libFuzzer target in <build>/fuzz (preset fuzz only).
function(nacre_fuzzer name)
  if(NOT NACRE_FUZZ)
    return()
  endif()
  cmake_parse_arguments(A "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE nacre_flags ${A_LINK})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_precompile_headers(${name} REUSE_FROM nacre_pch)
  add_dependencies(sanitized ${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
endfunction()
