package kbit.decode.json;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import kbit.decode.DecodeException;
import kbit.decode.Decoder;
import kbit.decode.Utf8;

/** A place in a JSON text (RFC 8259) and the strict reading of tokens from there. */
class JsonCursor {
  final byte[] data;
  int at;

  JsonCursor(byte[] data) {
    this.data = data;
  }

  DecodeException bad(String reason) {
    return at >= data.length ? DecodeException.truncated(data) : new DecodeException("bad_json", at, reason);
  }

  /** Skips white space and returns the byte there; -1 at the end. */
  int peek() {
    while (at < data.length) {
      byte next = data[at];
      if (next != ' ' && next != '\n' && next != '\t' && next != '\r') return next & 0xff;
      at++;
    }
    return -1;
  }

  /** Skips white space and returns the index of what follows. */
  final int place() {
    peek();
    return at;
  }

  void expect(char wanted) throws DecodeException {
    if (peek() != wanted) throw bad("expected '" + wanted + "'");
    at++;
  }

  /** After an item of a list or object: true at a comma, false at {@code close}; both are consumed. */
  boolean more(char close) throws DecodeException {
    int next = peek();
    if (next != ',' && next != close) throw bad("expected ',' or '" + close + "'");
    at++;
    return next == ',';
  }

  /** Throws unless a value of another kind starts here; then the caller reports a type mismatch. */
  DecodeException mismatch(String wanted) throws DecodeException {
    int next = peek();
    boolean value = next == '"' || next == '{' || next == '[' || next == '-' || isDigit(next);
    if (!value && next != -1 && !(next == 't' || next == 'f' || next == 'n')) throw bad("expected a value");
    if (next == -1) throw DecodeException.truncated(data);
    int start = at;
    if (!value) skipLiteral();
    else if (next == '-' || isDigit(next)) skipNumber();
    at = start;
    return DecodeException.mismatch(start, "expected " + wanted);
  }

  void skipLiteral() throws DecodeException {
    literal(data[at] == 't' ? "true" : data[at] == 'f' ? "false" : "null");
  }

  private void literal(String word) throws DecodeException {
    for (int i = 0; i < word.length(); i++) {
      if (at >= data.length || data[at] != word.charAt(i)) throw bad("expected " + word);
      at++;
    }
  }

  /** Checks a number's grammar; returns true if it is an integer, without fraction and exponent. */
  boolean skipNumber() throws DecodeException {
    if (data[at] == '-') at++;
    int first = at;
    digits();
    if (data[first] == '0' && at > first + 1) {
      at = first;
      throw bad("a number has no leading zero");
    }
    boolean integer = true;
    if (at < data.length && data[at] == '.') {
      at++;
      digits();
      integer = false;
    }
    if (at < data.length && (data[at] == 'e' || data[at] == 'E')) {
      at++;
      if (at < data.length && (data[at] == '+' || data[at] == '-')) at++;
      digits();
      integer = false;
    }
    return integer;
  }

  private void digits() throws DecodeException {
    if (at >= data.length || !isDigit(data[at])) throw bad("expected a digit");
    while (at < data.length && isDigit(data[at])) at++;
  }

  static boolean isDigit(int character) {
    return character >= '0' && character <= '9';
  }

  /** Reads over the name at the cursor if it is this one as it stands; else reads nothing. */
  final boolean skipName(byte[] name) {
    if (name == null) return false;
    int end = at + 1 + name.length;
    boolean same = end < data.length && data[at] == '"' && data[end] == '"' && Arrays.equals(data, at + 1, end, name, 0, name.length);
    if (same) at = end + 1;
    return same;
  }

  /** Reads the name of a member. */
  final byte[] name() throws DecodeException {
    if (peek() != '"') throw bad("expected a name in quotes");
    return string();
  }

  /** Reads a string, the cursor on its opening quote, as well-formed UTF-8 without escapes. */
  byte[] string() throws DecodeException {
    int start = ++at;
    while (true) {
      plainRun();
      if (data[at] == '"') {
        byte[] text = Arrays.copyOfRange(data, start, at);
        at++;
        return text;
      }
      return escaped(start);
    }
  }

  /** Moves to the next quote or backslash. */
  private void plainRun() throws DecodeException {
    while (at < data.length) {
      byte next = data[at];
      if (next == '"' || next == '\\') return;
      if (next < 0) {
        int length = Utf8.sequence(data, at, data.length);
        if (length == 0) throw new DecodeException("bad_utf8", at, "the text is not well-formed UTF-8");
        if (length < 0) throw DecodeException.truncated(data);
        at += length;
      } else if (next < 0x20) {
        throw bad("a control character in a string must be escaped");
      } else {
        at++;
      }
    }
    throw DecodeException.truncated(data);
  }

  private byte[] escaped(int start) throws DecodeException {
    ByteArrayOutputStream text = new ByteArrayOutputStream();
    text.write(data, start, at - start);
    while (data[at] == '\\') {
      escape(text);
      int begin = at;
      plainRun();
      text.write(data, begin, at - begin);
    }
    at++;
    return text.toByteArray();
  }

  private void escape(ByteArrayOutputStream text) throws DecodeException {
    int start = at++;
    if (at >= data.length) throw DecodeException.truncated(data);
    int place = "\"\\/bfnrt".indexOf(data[at]);
    if (place >= 0) {
      text.write("\"\\/\b\f\n\r\t".charAt(place));
      at++;
      return;
    }
    int character = codeUnit();
    if (Character.isHighSurrogate((char) character)) {
      if (at + 1 >= data.length && (at >= data.length || data[at] == '\\')) throw DecodeException.truncated(data);
      if (data[at] != '\\' || data[at + 1] != 'u') throw lone(start);
      at++;
      int low = codeUnit();
      if (!Character.isLowSurrogate((char) low)) throw lone(start);
      character = Character.toCodePoint((char) character, (char) low);
    } else if (Character.isLowSurrogate((char) character)) {
      throw lone(start);
    }
    text.writeBytes(Character.toString(character).getBytes(StandardCharsets.UTF_8));
  }

  private DecodeException lone(int position) {
    return new DecodeException("bad_utf8", position, "half of a surrogate pair");
  }

  private int codeUnit() throws DecodeException {
    if (data[at] != 'u') throw bad("unknown escape in a string");
    at++;
    int value = 0;
    for (int i = 0; i < 4; i++, at++) {
      int digit = at < data.length ? Character.digit(data[at], 16) : -1;
      if (digit < 0) throw bad("expected four hexadecimal digits");
      value = value << 4 | digit;
    }
    return value;
  }

  /** Reads over a value that no field wants, as strictly as one that is wanted. */
  void skip(int depth) throws DecodeException {
    int next = peek();
    switch (next) {
      case '"' -> string();
      case '{' -> skipObject(depth + 1);
      case '[' -> skipArray(depth + 1);
      case 't', 'f', 'n' -> skipLiteral();
      default -> {
        if (next != '-' && !isDigit(next)) throw bad("expected a value");
        skipNumber();
      }
    }
  }

  private void skipArray(int depth) throws DecodeException {
    if (depth > Decoder.MAX_DEPTH) throw DecodeException.tooDeep(at);
    at++;
    if (peek() == ']') {
      at++;
      return;
    }
    do {
      skip(depth);
    } while (more(']'));
  }

  void skipObject(int depth) throws DecodeException {
    if (depth > Decoder.MAX_DEPTH) throw DecodeException.tooDeep(at);
    at++;
    if (peek() == '}') {
      at++;
      return;
    }
    Set<String> names = new HashSet<>();
    do {
      int start = place();
      if (!names.add(new String(name(), StandardCharsets.UTF_8))) throw repeated(start);
      expect(':');
      skip(depth);
    } while (more('}'));
  }

  static DecodeException repeated(int position) {
    return new DecodeException("bad_json", position, "the name occurs twice in the object");
  }
}
